# A bill of materials: the packages that the installed files link or contain, as CMake found them, in SPDX 2.3.
#
# windrow_uses(NAME version LICENSE license [PLUG_IN]): to be called where a package was found. `version` may be empty;
# PLUG_IN says that a plug-in alone needs it. Packages of tests and of benchmarks are not named.
# windrow_write_bill(FILE): writes what was named, when all directories have been read.
function(windrow_uses name version)
  cmake_parse_arguments(USE "PLUG_IN" "LICENSE" "" ${ARGN})
  get_property(seen GLOBAL PROPERTY windrow_packages)
  if(name IN_LIST seen)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY windrow_packages ${name})
  if("${version}" STREQUAL "")
    set(version NOASSERTION)
  endif()
  set(relationship "\"SPDXRef-windrow\", \"relationshipType\": \"DEPENDS_ON\", \"relatedSpdxElement\": \"SPDXRef-${name}\"")
  if(USE_PLUG_IN)
    set(relationship
        "\"SPDXRef-${name}\", \"relationshipType\": \"OPTIONAL_DEPENDENCY_OF\", \"relatedSpdxElement\": \"SPDXRef-windrow\"")
  endif()
  windrow_spdx_package(package ${name} ${version} "${USE_LICENSE}")
  set_property(GLOBAL APPEND_STRING PROPERTY windrow_spdx_packages ",\n${package}")
  set_property(GLOBAL APPEND_STRING PROPERTY windrow_spdx_relationships ",\n    {\"spdxElementId\": ${relationship}}")
endfunction()

function(windrow_spdx_package result name version license)
  set(${result}
      "    {
      \"SPDXID\": \"SPDXRef-${name}\",
      \"name\": \"${name}\",
      \"versionInfo\": \"${version}\",
      \"downloadLocation\": \"NOASSERTION\",
      \"filesAnalyzed\": false,
      \"licenseConcluded\": \"NOASSERTION\",
      \"licenseDeclared\": \"${license}\",
      \"copyrightText\": \"NOASSERTION\"
    }"
      PARENT_SCOPE)
endfunction()

function(windrow_write_bill file)
  get_property(packages GLOBAL PROPERTY windrow_spdx_packages)
  get_property(relationships GLOBAL PROPERTY windrow_spdx_relationships)
  windrow_spdx_package(windrow windrow ${PROJECT_VERSION} Apache-2.0)
  # The same materials have the same name, and the time is that of SOURCE_DATE_EPOCH if it is set.
  string(UUID content NAMESPACE 6ba7b811-9dad-11d1-80b4-00c04fd430c8 NAME "${windrow}${packages}" TYPE SHA1)
  string(TIMESTAMP created "%Y-%m-%dT%H:%M:%SZ" UTC)
  file(WRITE ${file} "{
  \"spdxVersion\": \"SPDX-2.3\",
  \"dataLicense\": \"CC0-1.0\",
  \"SPDXID\": \"SPDXRef-DOCUMENT\",
  \"name\": \"windrow-${PROJECT_VERSION}\",
  \"documentNamespace\": \"https://spdx.org/spdxdocs/windrow-${PROJECT_VERSION}-${content}\",
  \"creationInfo\": {\"created\": \"${created}\", \"creators\": [\"Tool: CMake-${CMAKE_VERSION}\"]},
  \"packages\": [
${windrow}${packages}
  ],
  \"relationships\": [
    {\"spdxElementId\": \"SPDXRef-DOCUMENT\", \"relationshipType\": \"DESCRIBES\", \"relatedSpdxElement\": \"SPDXRef-windrow\"}${relationships}
  ]
}
")
endfunction()
