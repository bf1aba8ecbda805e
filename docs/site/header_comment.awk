# The comment at the top of a header, as documentation of the file: lines that are indented are code or tables of its
# contract, and stay as they are.
NR == 1 { inside = /^\/\// }
inside && !/^\/\// { inside = 0 }
inside && NR == 1 { print "/// @file"; print "/// " substr($0, 4); next }
inside && /^\/\/   / { print (indented ? "" : "///\n") "///     " substr($0, 6); indented = 1; next }
inside && /^\/\/$/ { print "///" (indented ? "     " : ""); next }
inside { print (indented ? "///\n" : "") "///" substr($0, 3); indented = 0; next }
{ print }
