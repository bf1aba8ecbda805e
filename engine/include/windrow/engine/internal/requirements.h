// What every public header requires, checked before the compiler reads the rest. It has no include guard, since a macro
// may be defined between two headers. Compilers continue after #error, so the include of a missing file ends the
// compilation.
#if __cplusplus < 202002L
#error "Windrow needs C++20: compile with -std=c++20 or later"
#include <ended by the error above>
#endif
#if defined(min) || defined(max)
#error "Windrow's headers do not work with macros min and max: write #undef for both before them, or define NOMINMAX"
#include <ended by the error above>
#endif
