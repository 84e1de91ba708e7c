/* redact.c - masks secrets: values of options, variables and keys whose names mean a secret, and values that look like one.
 *
 * The rules are those of the Python modules redaction and secret_names, function by function; tests/native/test_redact.py compares both. */
#define _GNU_SOURCE
#include "redact_text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define WORDS_MAX 64
#define WORD_MAX 40
/* ---------------------------------------------------------------- names */

static const char *const always[] = {
    "password",   "passwords",   "passwd",  "passphrase",       "passcode",   "pwd",     "secret",        "secrets",
    "credential", "credentials", "creds",   "apikey",           "apikeys",    "bearer",  "authorization", "cookie",
    "cookies",    "jwt",         "webhook", "connectionstring", "connstring", "connstr", "passwort",
};
static const char *const endings[] = {
    "password",   "passwd",    "passphrase",  "apikey",   "secretkey",    "accesskey", "privatekey",
    "accountkey", "authtoken", "accesstoken", "apitoken", "sessiontoken", "hftoken",
};
static const char *const fillers[] = {
    "value",   "b",          "base",        "hash",   "hex",    "header", "raw",    "plain",    "plaintext", "staging",
    "prod",    "production", "dev",         "test",   "local",  "team",   "org",    "personal", "main",      "default",
    "primary", "secondary",  "backup",      "old",    "new",    "read",   "write",  "ro",       "rw",        "readonly",
    "ci",      "hf",         "huggingface", "github", "gitlab", "wandb",  "openai", "aws",      "gcp",       "azure",
};
static const char *const keys[] = {
    "api",         "secret", "access",  "private",      "signing",     "sign",    "encryption", "encrypt",  "decryption",
    "wandb",       "ssh",    "rsa",     "gpg",          "pgp",         "license", "licence",    "auth",     "account",
    "shared",      "master", "service", "subscription", "storage",     "hmac",    "deploy",     "consumer", "app",
    "application", "client", "openai",  "anthropic",    "huggingface", "hf",      "comet",      "neptune",  "mlflow",
    "clearml",     "ngc",    "nvidia",  "gcp",          "google",      "azure",   "aws",        "minio",    "host",
    "admin",       "root",   "user",    "server",       "project",     "sas",     "kaggle",
};
static const char *const no_secret_tokens[] = {
    "pad",     "padding", "eos",    "bos",     "sos",    "eot",    "bot",    "eod",       "unk",         "unknown",  "cls",     "sep",
    "mask",    "special", "image",  "img",     "video",  "audio",  "speech", "text",      "num",         "number",   "n",       "count",
    "max",     "min",     "per",    "stop",    "start",  "begin",  "end",    "first",     "last",        "next",     "prev",    "previous",
    "prefix",  "suffix",  "class",  "dist",    "patch",  "null",   "blank",  "by",        "time",        "sec",      "seconds", "latency",
    "loss",    "cost",    "flops",  "bytes",   "single", "each",   "every",  "one",       "total",       "mean",     "avg",     "average",
    "decoder", "query",   "visual", "input",   "output", "target", "label",  "separator", "placeholder", "boundary", "control", "fill",
    "rare",    "oov",     "tool",   "sampled", "draft",  "think",  "rank",   "position",  "cached",
};
static const char *const passes[] = {
    "db",       "database", "user",     "mysql", "postgres", "pg",    "redis",    "smtp",  "mail",    "email",
    "ftp",      "sftp",     "http",     "https", "proxy",    "sudo",  "root",     "admin", "ssh",     "login",
    "registry", "docker",   "rabbitmq", "mongo", "ldap",     "vault", "keystore", "cert",  "elastic", "rsync",
};
static const char *const of_tokens[] = {"access", "auth", "api",    "refresh", "session", "bearer",
                                        "secret", "hf",   "github", "gitlab",  "wandb"};
static const char *const of_keys[] = {"api", "secret", "access", "private", "signing", "encryption", "ssh", "wandb", "openai"};
static const char *const of_pats[] = {"gh", "github", "gitlab", "azure", "ado"};
static const char *const services[] = {"wandb", "openai", "anthropic", "comet", "neptune", "huggingface", "clearml", "kaggle"};
static const char *const methods[] = {
    "kerberos", "krb5",  "gssapi", "ntlm", "ldap", "saml", "oidc",  "sso",    "iam",       "google", "github", "azure",
    "aws",      "munge", "sasl",   "tls",  "ssl",  "mtls", "basic", "digest", "negotiate", "oauth",  "oauth2", "anonymous",
};
static const char *const switches[] = {"use", "no", "enable", "disable", "require", "skip", "with", "without"};

static bool listed(const char *word, const char *const *list, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (strcmp(word, list[i]) == 0) {
            return true;
        }
    }
    return false;
}
#define LISTED(word, list) listed(word, list, COUNT(list))

static bool ends_with(const char *text, size_t length, const char *end) {
    size_t size = strlen(end);
    return length >= size && strncasecmp(text + length - size, end, size) == 0;
}

/* The words of a name in lower case, without numbers: [A-Z]+ that no lower-case letter follows, or [A-Z]?[a-z]+. At most the last
 * WORDS_MAX words; a word longer than WORD_MAX keeps its end. */
static size_t words_of(const char *name, size_t length, char words[WORDS_MAX][WORD_MAX]) {
    size_t count = 0, at = 0;
    while (at < length) {
        size_t end = at;
        if (is_upper(name[at])) {
            while (end < length && is_upper(name[end])) {
                end++;
            }
            if (end < length && is_lower(name[end])) { /* its last letter begins the next word, or it is one letter */
                end = end - at > 1 ? end - 1 : end;
            }
            if (end - at == 1 && end < length && is_lower(name[end])) {
                while (end < length && is_lower(name[end])) {
                    end++;
                }
            }
        } else if (is_lower(name[at])) {
            while (end < length && is_lower(name[end])) {
                end++;
            }
        } else {
            at++;
            continue;
        }
        if (count == WORDS_MAX) {
            memmove(words[0], words[1], sizeof words[0] * (WORDS_MAX - 1));
            count--;
        }
        size_t size = end - at, from = size >= WORD_MAX ? end - WORD_MAX + 1 : at;
        for (size_t i = from; i < end; i++) {
            words[count][i - from] = (char)(is_upper(name[i]) ? name[i] + 32 : name[i]);
        }
        words[count++][end - from] = 0;
        at = end;
    }
    return count;
}

/* The words without those that qualify the last one that counts. */
static size_t main_words_of(const char *name, size_t length, char words[WORDS_MAX][WORD_MAX]) {
    size_t count = words_of(name, length, words);
    while (count > 1 && LISTED(words[count - 1], fillers)) {
        count--;
    }
    return count;
}

bool postrun_redact_name(const char *name, size_t length) {
    char words[WORDS_MAX][WORD_MAX];
    size_t count = main_words_of(name, length, words);
    if (!count) {
        return false;
    }
    const char *last = words[count - 1], *before = count > 1 ? words[count - 2] : "";
    if (strcmp(last, "auth") == 0 || strcmp(last, "oauth") == 0) {
        return !LISTED(before, switches);
    }
    if (LISTED(last, always)) {
        return true;
    }
    for (size_t i = 0; i < COUNT(endings); i++) {
        if (ends_with(last, strlen(last), endings[i])) {
            return true;
        }
    }
    if (strcmp(last, "token") == 0) {
        return !LISTED(before, no_secret_tokens);
    }
    if (strcmp(last, "tokens") == 0) {
        return !*before || LISTED(before, of_tokens);
    }
    if (strcmp(last, "keys") == 0) {
        return LISTED(before, of_keys);
    }
    if (strcmp(last, "pat") == 0) {
        return LISTED(before, of_pats);
    }
    if (strcmp(last, "key") == 0) {
        for (size_t i = 0; i + 1 < count; i++) {
            if (LISTED(words[i], keys)) {
                return true;
            }
        }
        return false;
    }
    if (strcmp(last, "pass") == 0) {
        return !*before || LISTED(before, passes);
    }
    return strcmp(last, "string") == 0 && (strcmp(before, "connection") == 0 || strcmp(before, "conn") == 0);
}

/* ---------------------------------------------------------------- texts */

#define STOPS " \t\r\n\f\v\"'`&;|<>)"
#define STOPS_OF_PAIRS STOPS ",}]"

static bool is_name(char c) { return is_alnum(c) || in(c, "_.-"); }

/* A value that switches something on or off is not a secret. */
static bool is_literal(const char *text, size_t length) {
    static const char *const literals[] = {"", "true", "false", "none", "null", "yes", "no"};
    for (size_t i = 0; i < COUNT(literals); i++) {
        if (strlen(literals[i]) == length && strncasecmp(text, literals[i], length) == 0) {
            return true;
        }
    }
    return false;
}

static bool listed_any_case(const char *text, size_t length, const char *const *list, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (strlen(list[i]) == length && strncasecmp(text, list[i], length) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_number(const char *text, size_t length, size_t most) {
    size_t digits = 0;
    while (digits < length && is_digit(text[digits])) {
        digits++;
    }
    return length && digits == length && length <= most;
}

/* A number such as 4096, 1.5e9 or 300B. */
static bool is_count(const char *text, size_t length) {
    size_t at = 0;
    while (at < length && (is_digit(text[at]) || (at && in(text[at], "_.,")))) {
        at++;
    }
    if (at && at < length && in(text[at], "eE")) {
        size_t digits = at + 1;
        digits += digits < length && text[digits] == '+';
        size_t first = digits;
        while (digits < length && is_digit(text[digits])) {
            digits++;
        }
        at = digits > first ? digits : at;
    }
    at += at && at < length && in(text[at], "kKmMbBtTgG");
    return at && at == length;
}

/* A token of a text: one or two lower-case letters, <name>, [NAME]. */
static bool is_text_token(const char *text, size_t length) {
    if (length == 1 || length == 2) {
        return is_lower(text[0]) && is_lower(text[length - 1]);
    }
    if (length < 3) {
        return false;
    }
    size_t from = 1, to = length - 1;
    bool angle = text[0] == '<' && text[to] == '>';
    if (!angle && !(text[0] == '[' && text[to] == ']')) {
        return false;
    }
    from += angle && text[1] == '/';
    if (from >= to || to - from > (angle ? 30 : 20)) {
        return false;
    }
    for (; from < to; from++) {
        char c = text[from];
        if (!(angle ? is_alnum(c) || in(c, "_|") : is_upper(c) || is_digit(c) || c == '_')) {
            return false;
        }
    }
    return true;
}

static bool is_key_file(const char *text, size_t length) {
    static const char *const suffixes[] = {".pem", ".key", ".pub", ".crt", ".cert", ".json", ".txt"};
    for (size_t i = 0; i < length; i++) {
        if ((i == 0 && text[i] != '/') || is_space(text[i])) {
            return false;
        }
    }
    for (size_t i = 0; i < COUNT(suffixes); i++) {
        size_t size = strlen(suffixes[i]);
        if (length > size && memcmp(text + length - size, suffixes[i], size) == 0) {
            return true;
        }
    }
    return false;
}

/* Whether the value of a name that can be a secret's is none: a switch, a token of a text, the number of a pass, or a file. */
static bool is_plain(const char *name, size_t name_length, const char *text, size_t length) {
    char words[WORDS_MAX][WORD_MAX];
    if (is_literal(text, length)) {
        return true;
    }
    size_t count = main_words_of(name, name_length, words);
    const char *last = count ? words[count - 1] : "", *before = count > 1 ? words[count - 2] : "";
    if (strcmp(last, "tokens") == 0 && is_count(text, length)) {
        return true;
    }
    if (strcmp(last, "token") == 0 || strcmp(last, "tokens") == 0) {
        return is_number(text, length, 7) || is_text_token(text, length);
    }
    if (strcmp(last, "pass") == 0) {
        return is_number(text, length, 3);
    }
    if (strcmp(last, "auth") == 0 || strcmp(last, "oauth") == 0) {
        return listed_any_case(text, length, methods, COUNT(methods));
    }
    if (strcmp(last, "pwd") == 0) {
        static const char *const folders[] = {"", "work", "working", "old", "current"};
        return length && *text == '/' && LISTED(before, folders);
    }
    return strcmp(last, "key") == 0 && is_key_file(text, length);
}

/* A word that looks like a random one: upper case, lower case and digits, at least 8 characters. */
static bool is_mixed(const char *text, size_t length) {
    bool upper = false, lower = false, digit = false;
    size_t letters = 0;
    for (size_t i = 0; i < length; i++) {
        upper |= is_upper(text[i]);
        lower |= is_lower(text[i]);
        digit |= is_digit(text[i]);
        letters += ((unsigned char)text[i] & 0xC0) != 0x80; /* characters of UTF-8 */
    }
    return letters >= 8 && upper && lower && digit;
}

/* Whether a word with a dash in front is a value rather than an option. */
static bool is_no_option(const char *text, size_t length) {
    if (memchr(text, '=', length)) {
        return false;
    }
    while (length && *text == '-') {
        text++;
        length--;
    }
    return is_mixed(text, length);
}

static bool of_user_only(const char *scheme, size_t length) {
    static const char *const schemes[] = {"ssh",   "sftp", "ftp",   "rsync", "scp",     "svn", "mosh", "abfs",
                                          "abfss", "wasb", "wasbs", "hdfs",  "webhdfs", "s3",  "s3a",  "gs"};
    for (size_t i = length; i-- > 0;) {
        if (scheme[i] == '+') {
            length -= i + 1;
            scheme += i + 1;
            break;
        }
    }
    for (size_t i = 0; i < COUNT(schemes); i++) {
        if (strlen(schemes[i]) == length && strncasecmp(scheme, schemes[i], length) == 0) {
            return true;
        }
    }
    return false;
}

static void mask_urls(struct buffer *out, const char *text, size_t size) {
    size_t at = 0;
    for (size_t i = 0; i + 3 <= size; i++) {
        if (memcmp(text + i, "://", 3) != 0 || i < at) {
            continue;
        }
        size_t scheme = i;
        while (scheme > at && i - scheme < 31 && (is_alnum(text[scheme - 1]) || in(text[scheme - 1], "+.-"))) {
            scheme--;
        }
        while (scheme < i && !(is_upper(text[scheme]) || is_lower(text[scheme]))) {
            scheme++;
        }
        if (scheme == i) {
            continue;
        }
        size_t start = i + 3, end = find_in(text, start, size - start > 1024 ? start + 1024 : size, " \t\r\n\f\v\"'<>`");
        size_t slash = find_in(text, start, end, "/?#"), colon = find_in(text, start, slash, ":"), sign = SIZE_MAX;
        for (size_t k = start; k < slash; k++) {
            sign = text[k] == '@' ? k : sign;
        }
        bool divided = colon < slash, port = true;
        if (sign == SIZE_MAX && divided) {
            for (size_t k = colon + 1; k < slash; k++) {
                port = port && is_digit(text[k]);
            }
            if (!port) { /* a password with a slash */
                size_t k = find_in(text, slash, end, "@");
                sign = k < end ? k : SIZE_MAX;
            }
        }
        size_t stop = start;
        if (sign != SIZE_MAX && sign > start) {
            size_t first = find_in(text, start, sign, ":");
            if (first + 1 < sign) {
                put(out, text + at, first + 1 - at);
                put_mask(out);
                at = sign;
            } else if (first == sign && !of_user_only(text + scheme, i - scheme)) {
                put(out, text + at, start - at);
                put_mask(out);
                at = sign;
            }
            stop = sign;
        }
        put(out, text + at, stop > at ? stop - at : 0);
        at = stop;
        i = stop > i + 2 ? stop - 1 : i + 2;
    }
    put(out, text + at, size - at);
}

/* Length of the quotation mark at a place, with the backslashes before it; 0: none. */
static size_t quote_at(const char *text, size_t size, size_t at) {
    size_t end = at;
    while (end < size && text[end] == '\\') {
        end++;
    }
    return end < size && in(text[end], "\"'") ? end + 1 - at : 0;
}

static size_t closed(const char *text, size_t size, size_t at, const char *quote, size_t length) {
    while (at < size) {
        if (at + length <= size && memcmp(text + at, quote, length) == 0) {
            return at + length;
        }
        at += text[at] == '\\' && length == 1 && *quote == '"' ? 2 : 1;
    }
    return size;
}

static size_t value_end(const char *text, size_t size, size_t at, const char *stops) {
    char more[64];
    bool bracket = false;
    if (at < size && in(text[at], "[{")) {
        int depth = 0;
        while (at < size) {
            depth += in(text[at], "[{") - in(text[at], "]}");
            at++;
            if (depth == 0) {
                break;
            }
        }
        bracket = true;
    }
    bool command = !bracket && at < size && (text[at] == '`' || (text[at] == '$' && at + 1 < size && text[at + 1] == '('));
    size_t quote = bracket || command ? 0 : quote_at(text, size, at);
    if (command) {
        at = text[at] == '`' ? closed(text, size, at + 1, "`", 1) : closed(text, size, at + 2, ")", 1);
    } else if (quote) {
        at = closed(text, size, at + quote, text + at, quote);
    }
    if (quote || bracket) {
        strcpy(more, stops);
        strcat(more, ",}]:");
        stops = more;
    }
    while (at < size) {
        char letter = text[at];
        if (letter == '\\' && at + 1 < size) {
            at += 2;
        } else if (in(letter, "\"'")) {
            char next = at + 1 < size ? text[at + 1] : 0;
            if (at + 1 >= size || in(next, stops) || in(next, "\"'")) {
                if (!in(next, "\"'")) {
                    return at;
                }
                at = closed(text, size, at + 2, text + at + 1, 1);
            } else {
                at = closed(text, size, at + 1, text + at, 1);
            }
        } else if (in(letter, stops)) {
            return at;
        } else {
            at++;
        }
    }
    return size;
}

static bool of_query(const char *name, size_t length) {
    return (length == 3 && (strncasecmp(name, "sig", 3) == 0 || strncasecmp(name, "key", 3) == 0)) || ends_with(name, length, "signature");
}

static bool is_scheme(const char *text, size_t length) {
    static const char *const schemes[] = {"basic", "bearer", "digest", "token", "negotiate", "apikey"};
    for (size_t i = 0; i < COUNT(schemes); i++) {
        if (strlen(schemes[i]) == length && strncasecmp(text, schemes[i], length) == 0) {
            return true;
        }
    }
    return false;
}

static size_t back_over(const char *text, size_t at, size_t low, const char *set) {
    while (at > low && in(text[at - 1], set)) {
        at--;
    }
    return at;
}

/* The start of the name that ends at a position; at most 64 characters of the name. */
static size_t name_before(const char *text, size_t at, size_t low) {
    size_t begin = at;
    while (begin > low && at - begin < 64 && is_name(text[begin - 1])) {
        begin--;
    }
    return begin;
}

static bool ends_exactly(const char *text, size_t length, const char *end) {
    size_t size = strlen(end);
    return length >= size && memcmp(text + length - size, end, size) == 0;
}

/* Whether the name at `begin` follows a command or function that sets a variable. */
static bool is_set(const char *text, size_t begin) {
    static const char *const setters[] = {"setenv", "putenv", "setdefault", "-genv"};
    size_t low = begin > 80 ? begin - 80 : 0, at = back_over(text, begin, low, "\\\"'( \t"), name = name_before(text, at, low);
    for (size_t i = 0; at < begin && i < COUNT(setters); i++) {
        if (ends_exactly(text + name, at - name, setters[i])) {
            return true;
        }
    }
    return false;
}

/* Whether a value is a secret because of the text before its name: "name": "API_KEY", "value": ... and "wandb": {"key": ... */
static bool is_of_owner(const char *text, size_t begin, const char *name, size_t length) {
    bool key = length == 3 && strncasecmp(name, "key", 3) == 0, value = length == 5 && strncasecmp(name, "value", 5) == 0;
    size_t low = begin > 160 ? begin - 160 : 0, at = back_over(text, begin, low, "\\\"' \t\r\n");
    if ((!key && !value) || at == low) {
        return false;
    }
    if (key) {
        char words[WORDS_MAX][WORD_MAX];
        if (!in(text[at - 1], "{(")) {
            return false;
        }
        at = back_over(text, at - 1, low, "\\\"'=: \t\r\n");
        size_t from = name_before(text, at, low), count = words_of(text + from, at - from, words);
        for (size_t i = 0; i < count; i++) {
            if (LISTED(words[i], services)) {
                return true;
            }
        }
        return false;
    }
    if (text[at - 1] != ',') {
        return false;
    }
    size_t end = back_over(text, at - 1, low, "\\\"' \t\r\n"), owner = name_before(text, end, low);
    at = back_over(text, owner, low, "\\\"'=: \t\r\n");
    size_t from = name_before(text, at, low);
    return postrun_redact_name(text + owner, end - owner) && ends_exactly(text + from, at - from, "name");
}

/* The range of the value of the name from `begin` to `at`; false: the name is not that of a secret, or has no value. */
static bool value_of(const char *text, size_t size, size_t begin, size_t at, size_t *from, size_t *to) {
    const char *name = text + begin;
    size_t length = at - begin;
    char before = begin ? text[begin - 1] : 0, separator = 0;
    size_t behind = at;
    while (behind < size && in(text[behind], "\\\"'")) {
        behind++;
    }
    if (behind > at && behind < size && text[behind] == ']' && in(before, "\"'")) { /* os.environ["NAME"] = ... */
        behind++;
    }
    size_t start = behind;
    while (start < size && is_space(text[start])) {
        start++;
    }
    bool spaced = start > behind;
    if (start < size && in(text[start], "=:")) {
        separator = text[start++];
        size_t blank = start;
        while (start < size && is_blank(text[start])) {
            start++;
        }
        if (spaced && start == blank) {
            separator = 0;
        }
    }
    if (!separator) {
        start = behind;
        while (start < size && is_space(text[start])) {
            start++;
        }
        bool option = *name == '-' && (!begin || is_space(before) || in(before, "\"'`=(;&|"));
        if (!option && is_set(text, begin)) { /* setenv NAME value, os.putenv("NAME", "value") */
            option = true;
            if (start < size && text[start] == ',') {
                start++;
                while (start < size && is_space(text[start])) {
                    start++;
                }
            }
        }
        if (!option || start == behind || start >= size || in(text[start], "|;&<>") || !postrun_redact_name(name, length)) {
            return false;
        }
        *from = start;
        *to = value_end(text, size, start, STOPS);
        return text[start] != '-' || is_no_option(text + start, *to - start);
    }
    if (separator == ':' &&
        (in(before, "/:") || (start < size && text[start] == ':') || (start + 1 < size && text[start] == '/' && text[start + 1] == '/'))) {
        return false;
    }
    bool query = in(before, "?&") && separator == '=' && of_query(name, length);
    if (!(query || postrun_redact_name(name, length) || is_of_owner(text, begin, name, length)) || start >= size) {
        return false;
    }
    if (separator == '=' && text[start] == '/' && (is_name_of(name, length, "PWD") || is_name_of(name, length, "OLDPWD"))) {
        return false;
    }
    *from = start;
    if (separator == ':' && !quote_at(text, size, start) &&
        (ends_with(name, length, "authorization") || ends_with(name, length, "cookie") || ends_with(name, length, "cookies"))) {
        *to = find_in(text, start, size, "\r\n\"'`");
        return true;
    }
    size_t end = value_end(text, size, start, separator == ':' ? STOPS_OF_PAIRS : STOPS);
    if (end < size && is_blank(text[end]) && is_scheme(text + start, end - start)) {
        while (end < size && is_blank(text[end])) {
            end++;
        }
        end = value_end(text, size, end, STOPS);
    }
    *to = end;
    return true;
}

static void mask_named(struct buffer *out, const char *text, size_t size) {
    size_t kept = 0, at = 0;
    while (at < size) {
        size_t begin = at, end, from, to;
        if (!is_name(text[begin])) {
            at++;
            continue;
        }
        for (end = begin; end < size && is_name(text[end]); end++) {
        }
        at = end;
        while (end > begin && in(text[end - 1], ".-")) {
            end--;
        }
        if (end == begin) {
            continue;
        }
        at = end;
        if (!value_of(text, size, begin, end, &from, &to)) {
            continue;
        }
        size_t first = from, last = to, quote = quote_at(text, size, from);
        while (first < last && in(text[first], "\\\"'")) {
            first++;
        }
        while (last > first && in(text[last - 1], "\\\"'")) {
            last--;
        }
        if (is_plain(text + begin, end - begin, text + first, last - first)) {
            continue;
        }
        put(out, text + kept, from - kept);
        put(out, text + from, quote);
        put_mask(out);
        if (quote && to - from >= 2 * quote && memcmp(text + to - quote, text + from, quote) == 0) {
            put(out, text + from, quote);
        }
        kept = at = to;
    }
    put(out, text + kept, size - kept);
}

static void mask_bearers(struct buffer *out, const char *text, size_t size) {
    size_t kept = 0;
    for (size_t i = 0; i + 7 <= size; i++) {
        bool word = memcmp(text + i, "Bearer", 6) == 0 || memcmp(text + i, "bearer", 6) == 0 || memcmp(text + i, "BEARER", 6) == 0;
        if (!word || i < kept || (i && (is_alnum(text[i - 1]) || in(text[i - 1], "_-")))) {
            continue;
        }
        size_t from = i + 6;
        while (from < size && is_blank(text[from])) {
            from++;
        }
        if (from == i + 6 && from + 3 <= size && memcmp(text + from, "%20", 3) == 0) {
            from += 3;
        }
        size_t to = from;
        while (to < size && (is_alnum(text[to]) || in(text[to], "._~+/*=-"))) {
            to++;
        }
        size_t least = 20; /* shorter: prose */
        for (size_t k = from; k < to; k++) {
            least = is_digit(text[k]) ? 8 : least;
        }
        if (from > i + 6 && to - from >= least) {
            put(out, text + kept, from - kept);
            put_mask(out);
            kept = to;
            i = to - 1;
        }
    }
    put(out, text + kept, size - kept);
}

static size_t run_of(const char *text, size_t size, size_t at, const char *more) {
    size_t end = at;
    while (end < size && (is_alnum(text[end]) || in(text[end], more))) {
        end++;
    }
    return end - at;
}

/* Length of the well-known token that begins at a place; 0: none does. */
static size_t token_at(const char *text, size_t size, size_t at) {
    static const struct {
        const char *prefix, *more;
        size_t least;
    } kinds[] = {
        {"ghp_", "", 20},         {"gho_", "", 20},     {"ghu_", "", 20},     {"ghs_", "", 20},   {"ghr_", "", 20},
        {"github_pat_", "_", 20}, {"glpat-", "_-", 16}, {"hf_", "", 20},      {"npm_", "", 30},   {"xoxa-", "-", 10},
        {"xoxb-", "-", 10},       {"xoxe-", "-", 10},   {"xoxo-", "-", 10},   {"xoxp-", "-", 10}, {"xoxr-", "-", 10},
        {"xoxs-", "-", 10},       {"xapp-", "-", 20},   {"nvapi-", "_-", 30}, {"r8_", "", 30},    {"pypi-", "_-", 30},
        {"glptt-", "_-", 20},     {"sk_live_", "", 16}, {"ya29.", "_-", 20},  {"SG.", "_.-", 40},
    };
    for (size_t i = 0; i < COUNT(kinds); i++) {
        if (begins(text, size, at, kinds[i].prefix)) {
            size_t length = strlen(kinds[i].prefix), run = run_of(text, size, at + length, kinds[i].more);
            return run >= kinds[i].least ? length + run : 0;
        }
    }
    if (begins(text, size, at, "AKIA") || begins(text, size, at, "ASIA")) {
        size_t end = at + 4;
        while (end < size && (is_upper(text[end]) || is_digit(text[end]))) {
            end++;
        }
        return end - at == 20 && !(end < size && (is_alnum(text[end]) || text[end] == '_')) ? 20 : 0;
    }
    if (begins(text, size, at, "dapi")) {
        size_t end = at + 4;
        while (end < size && (is_digit(text[end]) || (text[end] >= 'a' && text[end] <= 'f'))) {
            end++;
        }
        return end - at == 36 && !(end < size && (is_alnum(text[end]) || text[end] == '_')) ? 36 : 0;
    }
    if (begins(text, size, at, "AIza")) {
        size_t run = run_of(text, size, at + 4, "_-");
        return run >= 35 ? 4 + run : 0;
    }
    if (begins(text, size, at, "sk-")) {
        size_t run = run_of(text, size, at + 3, "_-"), longest = 0, end;
        for (end = at + 3; end < at + 3 + run && end <= at + 43; end++) {
            size_t plain = run_of(text, size, end, "");
            longest = plain > longest ? plain : longest;
            end += plain;
        }
        return run >= 20 && longest >= 16 ? 3 + run : 0;
    }
    if (begins(text, size, at, "eyJ") && !(at && text[at - 1] == '-')) {
        size_t end = at + 3, part = run_of(text, size, end, "_-");
        end += part;
        for (int i = 0; part >= 8 && i < 2 && end < size && text[end] == '.'; i++) {
            part = run_of(text, size, end + 1, "_-");
            if (i == 1) {
                return part ? end + 1 + part - at : 0;
            }
            end += 1 + part;
        }
    }
    return 0;
}

static void mask_tokens(struct buffer *out, const char *text, size_t size) {
    size_t kept = 0;
    for (size_t i = 0; i < size;) {
        size_t length = i && (is_alnum(text[i - 1]) || text[i - 1] == '_') ? 0 : token_at(text, size, i);
        if (length) {
            put(out, text + kept, i - kept);
            put_mask(out);
            kept = i + length;
        }
        i += length ? length : 1;
    }
    put(out, text + kept, size - kept);
}

/* Length of "-----BEGIN ... PRIVATE KEY-----" (`last` is its end) or "-----END ... -----" at a place; 0: none. */
static size_t pem_line_at(const char *text, size_t size, size_t at, const char *word, const char *last, size_t most) {
    if (!begins(text, size, at, word)) {
        return 0;
    }
    size_t from = at + strlen(word), end = from;
    while (end < size && (is_upper(text[end]) || is_digit(text[end]) || text[end] == ' ')) {
        end++;
    }
    bool fits = ends_exactly(text + from, end - from, last) && end - from - strlen(last) <= most;
    return fits && begins(text, size, end, "-----") ? end + 5 - at : 0;
}

static void mask_private_keys(struct buffer *out, const char *text, size_t size) {
    size_t kept = 0;
    for (size_t i = 0; i < size; i++) {
        size_t line = text[i] == '-' ? pem_line_at(text, size, i, "-----BEGIN ", "PRIVATE KEY", 40) : 0;
        if (!line) {
            continue;
        }
        put(out, text + kept, i - kept);
        put_mask(out);
        size_t end = i + line, last = 0;
        while (end < size && !(last = text[end] == '-' ? pem_line_at(text, size, end, "-----END ", "", 60) : 0)) {
            end++;
        }
        kept = end + last;
        i = kept - 1;
    }
    put(out, text + kept, size - kept);
}

/* The password in user:password@host without a scheme; it has upper and lower case and digits. */
static void mask_logins(struct buffer *out, const char *text, size_t size) {
    size_t kept = 0;
    for (size_t i = 1; i < size; i++) {
        if (text[i] != ':' || !is_name(text[i - 1])) {
            continue;
        }
        size_t from = i + 1, to = from;
        while (to < size && (is_alnum(text[to]) || in(text[to], "_.~!$%^*+-"))) {
            to++;
        }
        bool host = to + 1 < size && text[to] == '@' && is_alnum(text[to + 1]) && !begins(text, size, to, "@sha256:");
        if (host && to - from <= 256 && is_mixed(text + from, to - from)) {
            put(out, text + kept, from - kept);
            put_mask(out);
            kept = to;
        }
        i = to > from ? to - 1 : i;
    }
    put(out, text + kept, size - kept);
}

/* Passwords that well-known programs take without a name; fed with the words of a command. */
struct program {
    const char *name; /* NULL: another one */
    enum { EXPECTS_NOTHING, EXPECTS_LOGIN, EXPECTS_VALUE } expected;
    bool login;
};

/* The position in the next word at which a password begins; SIZE_MAX: it has none. */
static size_t secret_in(struct program *p, const char *word, size_t size) {
    static const char *const programs[] = {
        "curl", "sshpass", "docker", "podman", "wandb", "mysql", "mysqldump", "mysqladmin", "mariadb",
    };
    int expected = p->expected;
    size_t colon = find_in(word, 0, size, ":"), behind_colon = colon + 1 < size ? colon + 1 : SIZE_MAX, base = size;
    const char *name = p->name ? p->name : "";
    bool option = size && *word == '-', short_p = begins(word, size, 0, "-p");
    p->expected = EXPECTS_NOTHING;
    if (expected == EXPECTS_LOGIN) {
        return behind_colon;
    }
    if (expected == EXPECTS_VALUE) {
        return option ? SIZE_MAX : 0;
    }
    while (base && word[base - 1] != '/') {
        base--;
    }
    for (size_t i = 0; i < COUNT(programs); i++) {
        if (is_name_of(word + base, size - base, programs[i])) {
            *p = (struct program){programs[i], EXPECTS_NOTHING, false};
            return SIZE_MAX;
        }
    }
    if (strcmp(name, "curl") == 0) {
        if (is_name_of(word, size, "-u") || is_name_of(word, size, "-U") || is_name_of(word, size, "--user") ||
            is_name_of(word, size, "--proxy-user")) {
            p->expected = EXPECTS_LOGIN;
        } else if (begins(word, size, 0, "-u") || begins(word, size, 0, "-U") || begins(word, size, 0, "--user=") ||
                   begins(word, size, 0, "--proxy-user=")) {
            return behind_colon;
        }
    } else if (strcmp(name, "sshpass") == 0 || (p->login && (strcmp(name, "docker") == 0 || strcmp(name, "podman") == 0))) {
        p->expected = is_name_of(word, size, "-p") ? EXPECTS_VALUE : EXPECTS_NOTHING;
        if ((short_p || !option) && strcmp(name, "sshpass") == 0) {
            p->name = NULL;
        }
    } else if (begins(name, strlen(name), 0, "mysql") || strcmp(name, "mariadb") == 0) {
        bool digits = true;
        for (size_t i = 2; i < size; i++) {
            digits = digits && is_digit(word[i]);
        }
        return short_p && !digits ? 2 : SIZE_MAX;
    } else if (is_name_of(word, size, "login")) {
        p->login = true;
    } else if (p->login && strcmp(name, "wandb") == 0 && !option) {
        size_t letters = 0;
        for (size_t i = 0; i < size; i++) {
            letters += ((unsigned char)word[i] & 0xC0) != 0x80; /* characters of UTF-8 */
        }
        if (letters >= 12) {
            p->login = false;
            return 0;
        }
    }
    return SIZE_MAX;
}

static void mask_programs(struct buffer *out, const char *text, size_t size) {
    static const char divides[] = " \t\r\n\f\v\"'`;|&()";
    struct program program = {0};
    size_t kept = 0;
    for (size_t at = 0; at < size;) {
        if (in(text[at], divides)) {
            if (in(text[at], ";|&\n`(")) {
                program = (struct program){0};
            }
            at++;
            continue;
        }
        size_t end = find_in(text, at, size, divides), place = secret_in(&program, text + at, end - at);
        if (place != SIZE_MAX) {
            put(out, text + kept, at + place - kept);
            put_mask(out);
            kept = end;
        }
        at = end;
    }
    put(out, text + kept, size - kept);
}

char *postrun_redact_text(const char *text, size_t length) {
    static void (*const passes_over[])(struct buffer *, const char *, size_t) = {
        mask_private_keys, mask_programs, mask_urls, mask_named, mask_bearers, mask_logins, mask_tokens,
    };
    struct buffer in_buffer = {0};
    put(&in_buffer, text, length);
    for (size_t i = 0; length >= 4 && i < COUNT(passes_over) && !in_buffer.failed; i++) {
        struct buffer out = {0};
        passes_over[i](&out, in_buffer.data, in_buffer.length);
        out.failed |= in_buffer.failed;
        free(in_buffer.data);
        in_buffer = out;
    }
    return finish(&in_buffer);
}

char *postrun_redact_value(const char *key, const char *value) {
    size_t length = strlen(value);
    if (postrun_redact_name(key, strlen(key)) && !is_plain(key, strlen(key), value, length)) {
        return strdup(REDACT_MASK);
    }
    return postrun_redact_text(value, length);
}

/* ---------------------------------------------------------------- arguments */

static bool is_option(const char *argument, size_t length) {
    if (!length || *argument != '-') {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        if (!is_name(argument[i])) {
            return false;
        }
    }
    return !in(argument[length - 1], ".-");
}

/* An option like -c or -lc, which a shell's text follows. */
static bool is_shell_option(const char *argument, size_t length) {
    if (length < 2 || *argument != '-' || argument[length - 1] != 'c') {
        return false;
    }
    for (size_t i = 1; i < length; i++) {
        if (!is_lower(argument[i])) {
            return false;
        }
    }
    return true;
}

/* The position at which the value begins that an argument assigns to a secret's name, NAME=... or NAME: ...; SIZE_MAX: none. */
static size_t assigned(const char *text, size_t size) {
    size_t at = 0;
    for (;;) {
        size_t end = at;
        while (end < size && (is_alnum(text[end]) || in(text[end], "_.+~/:@-"))) {
            end++;
        }
        char sign = end < size ? text[end] : 0;
        if (at == 0 && sign != '=') {
            size_t colon = find_in(text, at, end, ":");
            if (colon < end) {
                end = colon;
                sign = ':';
            }
        }
        if (!in(sign, "=:") || begins(text, size, end, "://")) {
            return SIZE_MAX;
        }
        size_t name = end;
        while (name > at && !in(text[name - 1], "/:@+~")) {
            name--;
        }
        size_t value = end + 1;
        while (sign == ':' && value < size && is_blank(text[value])) {
            value++;
        }
        bool folder = value < size && text[value] == '/' &&
                      (is_name_of(text + name, end - name, "PWD") || is_name_of(text + name, end - name, "OLDPWD"));
        if (postrun_redact_name(text + name, end - name) && !is_plain(text + name, end - name, text + value, size - value) && !folder) {
            return value;
        }
        if (sign == ':') {
            return SIZE_MAX;
        }
        at = end + 1;
    }
}

char *postrun_redact_arguments(const char *arguments, size_t length) {
    struct buffer out = {0};
    const char *option = NULL; /* the one whose value is next */
    size_t option_size = 0;
    bool setter = false, shell = false;
    struct program program = {0};
    for (size_t at = 0; at < length && !out.failed;) {
        const char *text = arguments + at;
        size_t size = strnlen(text, length - at);
        if (at) {
            put(&out, " ", 1);
        }
        size_t place = secret_in(&program, text, size);
        at += size + 1;
        if (option && (!(size && *text == '-') || is_no_option(text, size)) && !is_plain(option, option_size, text, size)) {
            put_mask(&out);
            option = NULL;
            setter = shell = false;
            continue;
        }
        if (place != SIZE_MAX) {
            put(&out, text, place);
            put_mask(&out);
            option = NULL;
            setter = shell = false;
            continue;
        }
        option = (setter || is_option(text, size)) && postrun_redact_name(text, size) ? text : NULL;
        option_size = size;
        setter = is_name_of(text, size, "-genv") || is_name_of(text, size, "setenv");
        size_t value = shell ? SIZE_MAX : assigned(text, size);
        shell = is_shell_option(text, size);
        if (value != SIZE_MAX) {
            put(&out, text, value);
            put_mask(&out);
            continue;
        }
        char *masked = postrun_redact_text(text, size);
        if (masked) {
            put(&out, masked, strlen(masked));
        }
        out.failed |= !masked;
        free(masked);
    }
    return finish(&out);
}
