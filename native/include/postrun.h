/* postrun.h - the public C interface of postrun.
 *
 * Licence: Apache-2.0. This header needs nothing but a C11 compiler.
 */
#ifndef POSTRUN_H
#define POSTRUN_H

#ifdef __cplusplus
extern "C" {
#endif

#define POSTRUN_VERSION_MAJOR 0
#define POSTRUN_VERSION_MINOR 1
#define POSTRUN_VERSION_PATCH 0

#if defined(_WIN32)
#define POSTRUN_API __declspec(dllexport)
#else
#define POSTRUN_API __attribute__((visibility("default")))
#endif

/* The version of the library that is loaded, "MAJOR.MINOR.PATCH"; static storage, never NULL.
 * It may differ from the macros above when a program runs with another library than it was compiled with. */
POSTRUN_API const char *postrun_version(void);

#ifdef __cplusplus
}
#endif

#endif /* POSTRUN_H */
