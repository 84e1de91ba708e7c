/* redact.h - masking of secrets in command lines and facts. */
#ifndef POSTRUN_REDACT_H
#define POSTRUN_REDACT_H

#include <stdbool.h>
#include <stddef.h>

#define REDACT_MASK "***"

bool postrun_redact_name(const char *name, size_t length); /* whether the value of an option, variable or key of this name is a secret */
/* Copies without secrets, for free(); NULL: no memory. */
char *postrun_redact_text(const char *text, size_t length);
char *postrun_redact_value(const char *key, const char *value);
char *postrun_redact_arguments(const char *arguments, size_t length); /* divided by NUL -> divided by blanks */

/* The kinds of text that are redacted in addition to secrets. */
struct redaction {
    bool hosts, users, paths, command;
    char names[2][256]; /* of the user */
};
/* From POSTRUN_REDACT, a comma-separated list, and from USER and LOGNAME. An unknown word redacts everything. Read when a session
 * begins, never by a thread of the library: the program may be changing its environment. */
struct redaction postrun_redaction(void);
void postrun_redact_host(char *host, size_t size);                  /* this host's name -> one that does not name it */
char *postrun_redact_places(char *text, const struct redaction *wish); /* takes `text`, from malloc; NULL: no memory */

#endif
