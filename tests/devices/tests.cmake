# What every device must do; the tests of each device link it.
add_library(
  windrow_conformance OBJECT
  devices/batching_conformance.cc devices/kernel_conformance.cc devices/several_conformance.cc devices/memory_conformance.cc
  devices/model_conformance.cc devices/placed_conformance.cc devices/static_conformance.cc batching/oracle.cc ops/cases.cc ops/model_cases.cc)
windrow_test_program(windrow_conformance windrow::models GTest::gtest)
windrow_test(
  device_test
  SOURCES devices/device_test.cc devices/simulated.cc $<TARGET_OBJECTS:windrow_conformance>
  LINKS windrow::models)
