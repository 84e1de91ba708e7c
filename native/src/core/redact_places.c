/* redact_places.c - replaces host names, user names and paths in texts, as POSTRUN_REDACT requests. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "redact_text.h"

struct redaction postrun_redaction(void) {
    struct redaction wish = {0};
    const char *list = getenv("POSTRUN_REDACT");
    while (list && *list) {
        size_t length = strcspn(list, ", ");
        if (is_name_of(list, length, "hosts")) {
            wish.hosts = true;
        } else if (is_name_of(list, length, "users")) {
            wish.users = true;
        } else if (is_name_of(list, length, "paths")) {
            wish.paths = true;
        } else if (is_name_of(list, length, "command")) {
            wish.command = true;
        } else if (length) {
            wish = (struct redaction){.hosts = true, .users = true, .paths = true, .command = true};
        }
        list += length + (list[length] != 0);
    }
    static const char *const variables[] = {"USER", "LOGNAME"};
    for (size_t i = 0; wish.users && i < COUNT(variables); i++) {
        const char *user = getenv(variables[i]);
        if (user && strcmp(user, "root") != 0) {
            snprintf(wish.names[i], sizeof wish.names[i], "%s", user);
        }
    }
    return wish;
}

/* A name that stays the same for this host until it is restarted, and from which the host's name cannot be derived: it includes the
 * boot's random id, which is never recorded. */
void postrun_redact_host(char *host, size_t size) {
    char boot[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    uint64_t hash = 0xcbf29ce484222325u;
    if (file) {
        if (!fgets(boot, sizeof boot, file)) {
            *boot = 0;
        }
        fclose(file);
    }
    const char *parts[] = {boot, host, boot};
    for (size_t i = 0; i < COUNT(parts); i++) {
        for (const char *c = parts[i]; *c; c++) {
            hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
        }
    }
    snprintf(host, size, "node-%08x", *boot ? (unsigned)(hash >> 32) : 0u);
}

static void replace_word(struct buffer *out, const char *text, size_t size, const char *word, const char *by) {
    size_t length = strlen(word), kept = 0;
    for (size_t i = 0; length > 1 && i + length <= size; i++) {
        bool alone =
            memcmp(text + i, word, length) == 0 && !(i && is_alnum(text[i - 1])) && !(i + length < size && is_alnum(text[i + length]));
        if (alone) {
            put(out, text + kept, i - kept);
            put(out, by, strlen(by));
            kept = i + length;
            i = kept - 1;
        }
    }
    put(out, text + kept, size - kept);
}

/* The user's name in /home/NAME and /Users/NAME. */
static void replace_homes(struct buffer *out, const char *text, size_t size) {
    static const char *const homes[] = {"/home/", "/Users/"};
    size_t kept = 0;
    for (size_t i = 0; i < size; i++) {
        for (size_t k = 0; k < COUNT(homes); k++) {
            if (begins(text, size, i, homes[k])) {
                size_t from = i + strlen(homes[k]), to = find_in(text, from, size, "/ \t\r\n\"'`:;,)]}");
                put(out, text + kept, from - kept);
                put(out, "user", to > from ? 4 : 0);
                kept = to;
                i = to > i ? to - 1 : i;
                break;
            }
        }
    }
    put(out, text + kept, size - kept);
}

/* The last part of each absolute path. */
static void shorten_paths(struct buffer *out, const char *text, size_t size) {
    size_t kept = 0;
    for (size_t i = 0; i < size; i++) {
        bool first = text[i] == '/' && !(i && (is_alnum(text[i - 1]) || in(text[i - 1], "_.-~/:") || (unsigned char)text[i - 1] > 127));
        bool home = text[i] == '~' && i + 1 < size && text[i + 1] == '/' && !(i && !is_space(text[i - 1]) && !in(text[i - 1], "\"'=`("));
        bool after_colon = text[i] == '/' && i && text[i - 1] == ':' && !(i + 1 < size && text[i + 1] == '/');
        if (!first && !home && !after_colon) {
            continue;
        }
        size_t to = find_in(text, i, size, " \t\r\n\"'`:;,)]}"), end = to;
        while (end > i + 1 && text[end - 1] == '/') {
            end--;
        }
        size_t name = end;
        while (name > i && text[name - 1] != '/') {
            name--;
        }
        if (end > i + 1 && name > i + 1) {
            put(out, text + kept, i - kept);
            put(out, text + name, end - name);
            kept = end;
        }
        i = to > i ? to - 1 : i;
    }
    put(out, text + kept, size - kept);
}

static void step(struct buffer *text, struct buffer *out) {
    out->failed |= text->failed;
    free(text->data);
    *text = *out;
    *out = (struct buffer){0};
}

char *postrun_redact_places(char *text, const struct redaction *wish) {
    if (!text || !(wish->hosts || wish->users || wish->paths)) {
        return text;
    }
    struct buffer all = {0}, out = {0};
    put(&all, text, strlen(text));
    free(text);
    if (wish->hosts && !all.failed) {
        char host[256], alias[256];
        if (gethostname(host, sizeof host) == 0) {
            host[sizeof host - 1] = 0;
            memcpy(alias, host, sizeof alias);
            postrun_redact_host(alias, sizeof alias);
            replace_word(&out, all.data, all.length, host, alias);
            step(&all, &out);
            char *domain = strchr(host, '.');
            if (domain && !all.failed) {
                *domain = 0;
                replace_word(&out, all.data, all.length, host, alias);
                step(&all, &out);
            }
        }
    }
    for (size_t i = 0; wish->users && i < COUNT(wish->names) && !all.failed; i++) {
        if (*wish->names[i]) {
            replace_word(&out, all.data, all.length, wish->names[i], "user");
            step(&all, &out);
        }
    }
    if (wish->users && !all.failed) {
        replace_homes(&out, all.data, all.length);
        step(&all, &out);
    }
    if (wish->paths && !all.failed) {
        shorten_paths(&out, all.data, all.length);
        step(&all, &out);
    }
    return finish(&all);
}
