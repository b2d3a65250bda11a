/* The loops over bytes of RabbitMQ streams that Python is too slow for.
 *
 *   check    computes the CRCs of some chunks, and the one over all of their bytes, and looks
 *            whether their entries fill them
 *   walk     finds where each message of some chunks begins and how long it is
 *   columns  decodes messages, AMQP 1.0 or plain bytes, into the buffers of Arrow arrays
 *
 * Formats: docs/reference/formats.md (chunks and entries, verified against Osiris), OASIS AMQP 1.0
 * parts 1 and 3. The plain decoder in coldstream.columns.reference says what is right. `columns`
 * takes only what it is sure of; every message that is damaged, or has values that are rare, is left
 * to the plain decoder (its number goes into `left`), so nothing here has to explain an error.
 *
 * Bytes are hostile: each length is checked against what is there before it is used. Nothing is
 * allocated, nothing is kept between calls, no function of the C library is used but memcpy,
 * memcmp and memset.
 */
#include <stdint.h>
#include <string.h>

#include "crc.h"

#define EXPORT __attribute__((visibility("default")))
#define INT32_LIMIT 0x7fffffffLL

static inline uint32_t be16(const uint8_t *p) { return (uint32_t)p[0] << 8 | p[1]; }
static inline uint32_t be32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}
static inline uint64_t be64(const uint8_t *p) { return (uint64_t)be32(p) << 32 | be32(p + 4); }

/* Bumped with every change of a signature or a struct; the loader compares it. */
EXPORT int32_t coldstream_kernel_abi(void) { return 5; }

/* ---- check ----------------------------------------------------------------------------------- */

struct check {
    const uint8_t *data;
    const int64_t *bounds;        /* positions in data: of each chunk, and after the last one */
    const int64_t *begin, *end;   /* of the bytes that each chunk's CRC is of, within its bounds */
    const int64_t *expected;      /* CRCs */
    int64_t chunks;
    const int64_t *entries;       /* how many each chunk should have; NULL: do not look */
    uint8_t *simple;              /* comes out, beside `entries`: whether it is that many, each simple */
    int64_t good;                 /* comes out: chunks before the first whose CRC is another one */
    int64_t crc;                  /* comes out: over all bytes of these */
};

/* Whether this many entries, none of them a sub-batch, fill all of [p, end). Most are as long as the
 * one before: where that holds, the processor need not wait for one length to look at the next. */
static int simple_entries(const uint8_t *p, const uint8_t *end, int64_t entries) {
    int64_t stride = 0;
    for (; entries > 0; entries--) {
        if (end - p < 4) return 0;
        uint32_t length = be32(p);
        if (length >> 31 || (int64_t)length > end - p - 4) return 0;
        if ((int64_t)length + 4 != stride) {
            stride = (int64_t)length + 4;
            __asm__ volatile("" : "+r"(stride)); /* a branch, which is guessed; no selection */
        }
        p += stride;
    }
    return p == end;
}

/* Smaller than this, a second look at bytes is cheaper than joining two CRCs. */
enum { CHECK_JOINED = 1 << 15 };

/* Every chunk before the first that does not hold; 0 if this processor cannot. */
EXPORT int32_t coldstream_check(struct check *c) {
    int ability = crc_ability();
    if (ability == CRC_NONE) return 0;
    uint32_t all = 0, power = 0;
    int64_t power_of = -1;        /* most chunks are as large as the one before */
    for (c->good = 0; c->good < c->chunks; c->good++) {
        int64_t i = c->good, from = c->bounds[i], begin = c->begin[i], end = c->end[i];
        int64_t until = c->bounds[i + 1];
        if (from < 0 || begin < from || end < begin || until < end) break; /* a header that lies */
        uint32_t crc = crc_of(ability, 0, c->data + begin, end - begin);
        if ((int64_t)crc != c->expected[i]) break;
        /* The bytes are in the cache now. */
        if (c->entries)
            c->simple[i] = (uint8_t)simple_entries(c->data + begin, c->data + end, c->entries[i]);
        if (end - begin < CHECK_JOINED || (end - begin) >> 32) {
            all = crc_of(ability, all, c->data + from, until - from);
            continue;
        }
        all = crc_of(ability, all, c->data + from, begin - from);
        if (power_of != end - begin) power = crc_power(power_of = end - begin);
        all = crc_times(power, all) ^ crc; /* CRC(A B) = CRC(A) * x^(8 * size of B) + CRC(B) */
        all = crc_of(ability, all, c->data + end, until - end);
    }
    c->crc = all;
    return 1;
}

/* ---- walk ------------------------------------------------------------------------------------ */

enum { WALK_END = 0, WALK_FULL = 1, WALK_SUB_BATCH = 2, WALK_DAMAGED = 3 };

struct walk {
    /* what to walk, given */
    const uint8_t *data;
    const int64_t *begin, *end;   /* of each chunk's entries, positions in data */
    const int64_t *entries, *records;
    const int64_t *first, *last;  /* of each chunk: record numbers [first, last) are wanted */
    int64_t chunks;
    /* where it is: begins at chunk, -1, 0, 0 */
    int64_t chunk;
    int64_t position;             /* in data; -1 at the beginning of a chunk */
    int64_t entry, record;        /* of the chunk: how many are done */
    /* what comes out */
    const uint8_t **messages;     /* addresses */
    int32_t *lengths;
    int64_t *rows;                /* of each chunk: rows that this call has added */
    int64_t room;                 /* messages that fit */
    int64_t found;                /* messages so far */
    int64_t bytes, most_bytes;    /* of messages so far; no more is added beyond most_bytes */
    int64_t stopped;              /* position after the last entry of the chunk before `chunk` */
};

/* Messages are far apart and their lengths alike, so where one will begin can be asked of memory
 * before it is needed: this many ahead. A wrong guess costs nothing but the asking. */
enum { WALK_AHEAD = 16, LINE = 64, FETCHED = 1024 };

/* Go on until everything is found, or something is in the way. */
EXPORT int32_t coldstream_walk(struct walk *w) {
    for (; w->chunk < w->chunks; w->chunk++, w->position = -1) {
        int64_t i = w->chunk;
        if (w->position < 0) {
            w->position = w->begin[i];
            w->entry = w->record = 0;
        }
        int64_t end = w->end[i];
        while (w->entry < w->entries[i]) {
            if (end - w->position < 4) return WALK_DAMAGED;
            const uint8_t *p = w->data + w->position;
            uint32_t length = be32(p);
            if (length >> 31) return WALK_SUB_BATCH;
            int64_t left = end - w->position - 4, ahead = WALK_AHEAD * (4 + (int64_t)length);
            if ((int64_t)length > left) return WALK_DAMAGED;
            if (ahead < left) __builtin_prefetch(p + ahead);
            if (w->record >= w->first[i] && w->record < w->last[i]) {
                if (w->found >= w->room) return WALK_FULL;
                if (w->found && w->bytes + (int64_t)length > w->most_bytes) return WALK_FULL;
                w->messages[w->found] = p + 4;
                w->lengths[w->found++] = (int32_t)length;
                w->bytes += length;
                w->rows[i]++;
            }
            w->position += 4 + (int64_t)length;
            w->entry++;
            w->record++;
        }
        if (w->record != w->records[i]) return WALK_DAMAGED;
        w->stopped = w->position;
    }
    return WALK_END;
}

/* ---- columns --------------------------------------------------------------------------------- */

struct text {                     /* string or binary */
    int32_t *offsets;
    uint8_t *data;
    uint8_t *valid;               /* bits; NULL where every value is valid */
    int64_t used, capacity;       /* bytes of data */
};

struct number {                   /* int64 or timestamp[us]; booleans are 0 and 1 */
    int64_t *values;
    uint8_t *valid;
};

struct map {                      /* map<string, string> */
    int32_t *offsets;
    uint8_t *valid;
    struct text keys, values;
    int64_t used, capacity;       /* entries */
};

/* The fields of `properties`, in the order of the columns. */
enum {
    P_MESSAGE_ID, P_MESSAGE_ID_TYPE, P_USER_ID, P_TO, P_SUBJECT, P_REPLY_TO, P_CORRELATION_ID,
    P_CORRELATION_ID_TYPE, P_CONTENT_TYPE, P_CONTENT_ENCODING, P_EXPIRY, P_CREATION, P_GROUP_ID,
    P_GROUP_SEQUENCE, P_REPLY_TO_GROUP_ID, P_COUNT
};

/* The fields of `header`, in the order of AMQP and of the columns. */
enum { H_DURABLE, H_PRIORITY, H_TTL, H_FIRST_ACQUIRER, H_DELIVERY_COUNT, H_COUNT };

/* How messages are read: `BodyFormat` of coldstream.osiris.body. */
enum { FORMAT_AUTO, FORMAT_AMQP, FORMAT_BYTES };

struct columns {
    const uint8_t *const *messages;
    const int32_t *lengths;
    int64_t count;
    int64_t format;
    /* which columns are wanted: NULL pointers are not */
    struct text *body_kind, *body;
    struct map *application_properties, *message_annotations, *delivery_annotations, *footer;
    uint8_t *properties;          /* validity of the struct */
    struct text *texts[P_COUNT];
    struct number *numbers[P_COUNT];
    uint8_t *header;              /* validity of the struct */
    struct number *headers[H_COUNT];
    /* numbers of messages that were left to the plain decoder */
    int64_t *left;
    int64_t left_count;
};

struct span { const uint8_t *at; int64_t size; };

/* A value that is neither composed nor rare. */
enum { V_NULL, V_BOOL, V_UNSIGNED, V_SIGNED, V_TIME, V_UUID, V_BINARY, V_STRING, V_SYMBOL };
struct value {
    int kind;
    uint8_t code;                 /* its format code */
    uint64_t number;              /* V_BOOL, V_UNSIGNED; V_SIGNED and V_TIME as two's complement */
    struct span bytes;            /* V_UUID, V_BINARY, V_STRING, V_SYMBOL */
};

static inline void set_bit(uint8_t *bits, int64_t i) { bits[i >> 3] |= (uint8_t)(1u << (i & 7)); }

static inline uint64_t load8(const uint8_t *p) { uint64_t w; memcpy(&w, p, 8); return w; }
static inline uint32_t load4(const uint8_t *p) { uint32_t w; memcpy(&w, p, 4); return w; }

#define HIGH_BITS 0x8080808080808080ull

static inline int is_ascii(const uint8_t *p, int64_t n) {
    if (n >= 8) {
        uint64_t all = load8(p + n - 8);
        for (int64_t i = 0; i + 8 < n; i += 8) all |= load8(p + i);
        return !(all & HIGH_BITS);
    }
    if (n >= 4) return !((load4(p) | load4(p + n - 4)) & 0x80808080u);
    uint8_t all = 0;
    for (int64_t i = 0; i < n; i++) all |= p[i];
    return all < 0x80;
}

/* As Python's strict decoder: no overlong forms, no surrogates, nothing above U+10FFFF. */
static int is_utf8(const uint8_t *p, int64_t n) {
    if (is_ascii(p, n)) return 1;
    const uint8_t *end = p + n;
    while (p < end) {
        uint8_t c = *p;
        if (c < 0x80) { p++; continue; }
        int more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
        if (c < 0xc2 || c > 0xf4 || end - p <= more) return 0;
        uint8_t d = p[1];
        if ((d & 0xc0) != 0x80) return 0;
        if ((c == 0xe0 && d < 0xa0) || (c == 0xed && d > 0x9f)) return 0;
        if ((c == 0xf0 && d < 0x90) || (c == 0xf4 && d > 0x8f)) return 0;
        for (int k = 2; k <= more; k++)
            if ((p[k] & 0xc0) != 0x80) return 0;
        p += more + 1;
    }
    return 1;
}

/* Reads one value at *at; 0 if it is cut, damaged, composed or rare. */
static int read_value(const uint8_t **at, const uint8_t *end, struct value *v) {
    const uint8_t *p = *at;
    int64_t left = end - p;
    if (left < 1) return 0;
    uint8_t code = *p++;
    left--;
    int64_t size = 0;
    v->number = 0;
    v->code = code;
    switch (code) {
    case 0x40: v->kind = V_NULL; break;
    case 0x41: v->kind = V_BOOL; v->number = 1; break;
    case 0x42: v->kind = V_BOOL; break;
    case 0x43: case 0x44: v->kind = V_UNSIGNED; break;
    case 0x50: case 0x52: case 0x53:
        if (left < 1) return 0;
        v->kind = V_UNSIGNED; v->number = p[0]; size = 1; break;
    case 0x51: case 0x54: case 0x55:
        if (left < 1) return 0;
        v->kind = V_SIGNED; v->number = (uint64_t)(int64_t)(int8_t)p[0]; size = 1; break;
    case 0x56:
        if (left < 1 || p[0] > 1) return 0;
        v->kind = V_BOOL; v->number = p[0]; size = 1; break;
    case 0x60:
        if (left < 2) return 0;
        v->kind = V_UNSIGNED; v->number = be16(p); size = 2; break;
    case 0x61:
        if (left < 2) return 0;
        v->kind = V_SIGNED; v->number = (uint64_t)(int64_t)(int16_t)be16(p); size = 2; break;
    case 0x70:
        if (left < 4) return 0;
        v->kind = V_UNSIGNED; v->number = be32(p); size = 4; break;
    case 0x71:
        if (left < 4) return 0;
        v->kind = V_SIGNED; v->number = (uint64_t)(int64_t)(int32_t)be32(p); size = 4; break;
    case 0x80:
        if (left < 8) return 0;
        v->kind = V_UNSIGNED; v->number = be64(p); size = 8; break;
    case 0x81: case 0x83:
        if (left < 8) return 0;
        v->kind = code == 0x81 ? V_SIGNED : V_TIME; v->number = be64(p); size = 8; break;
    case 0x98:
        if (left < 16) return 0;
        v->kind = V_UUID; v->bytes.at = p; v->bytes.size = 16; size = 16; break;
    case 0xa0: case 0xa1: case 0xa3: case 0xb0: case 0xb1: case 0xb3: {
        int width = code & 0x10 ? 4 : 1;
        if (left < width) return 0;
        int64_t length = width == 4 ? (int64_t)be32(p) : p[0];
        if (length > left - width) return 0;
        p += width;
        v->bytes.at = p;
        v->bytes.size = length;
        v->kind = (code & 0x0f) == 0 ? V_BINARY : (code & 0x0f) == 1 ? V_STRING : V_SYMBOL;
        if (v->kind == V_STRING && !is_utf8(p, length)) return 0;
        if (v->kind == V_SYMBOL && !is_ascii(p, length)) return 0;
        size = length;
        break;
    }
    default: return 0;
    }
    *at = p + size;
    return 1;
}

/* The frame of a list (high 0xc0, 0xd0) or map (0xc1, 0xd1): count and end of its elements. */
static int read_frame(const uint8_t **at, const uint8_t *end, uint8_t low, int64_t *count,
                      const uint8_t **frame_end) {
    const uint8_t *p = *at;
    if (end - p < 1) return 0;
    uint8_t code = *p++;
    int width = code == (0xc0 | low) ? 1 : code == (0xd0 | low) ? 4 : 0;
    if (!width || end - p < width) return 0;
    int64_t size = width == 4 ? (int64_t)be32(p) : p[0];
    p += width;
    if (size < width || size > end - p) return 0;
    *frame_end = p + size;
    *count = width == 4 ? (int64_t)be32(p) : p[0];
    p += width;
    if (*count > *frame_end - p) return 0;
    *at = p;
    return 1;
}

/* Most texts are short, and a call of memcpy costs more than they do. */
static inline int put(struct text *t, const uint8_t *p, int64_t n) {
    if (n > t->capacity - t->used || t->used + n > INT32_LIMIT) return 0;
    uint8_t *to = t->data + t->used;
    if (n > 16) {
        memcpy(to, p, (size_t)n);
    } else if (n >= 8) {
        uint64_t head = load8(p), tail = load8(p + n - 8);
        memcpy(to, &head, 8);
        memcpy(to + n - 8, &tail, 8);
    } else if (n >= 4) {
        uint32_t head = load4(p), tail = load4(p + n - 4);
        memcpy(to, &head, 4);
        memcpy(to + n - 4, &tail, 4);
    } else {
        for (int64_t i = 0; i < n; i++) to[i] = p[i];
    }
    t->used += n;
    return 1;
}

static int put_number(struct text *t, uint64_t n, int negative) {
    uint8_t digits[20];
    int at = 20;
    do { digits[--at] = (uint8_t)('0' + n % 10); n /= 10; } while (n);
    if (negative && !put(t, (const uint8_t *)"-", 1)) return 0;
    return put(t, digits + at, 20 - at);
}

static int put_signed(struct text *t, uint64_t n) {
    int negative = (int64_t)n < 0;
    return put_number(t, negative ? 0 - n : n, negative);
}

static int put_uuid(struct text *t, const uint8_t *p) {
    static const char hex[] = "0123456789abcdef";
    uint8_t out[36];
    int at = 0;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) out[at++] = '-';
        out[at++] = (uint8_t)hex[p[i] >> 4];
        out[at++] = (uint8_t)hex[p[i] & 15];
    }
    return put(t, out, 36);
}

static int put_base64(struct text *t, const uint8_t *p, int64_t n) {
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int64_t i = 0; i < n; i += 3) {
        int64_t have = n - i < 3 ? n - i : 3;
        uint32_t three = (uint32_t)p[i] << 16 | (have > 1 ? (uint32_t)p[i + 1] << 8 : 0)
                       | (have > 2 ? p[i + 2] : 0);
        uint8_t out[4] = {
            (uint8_t)digit[three >> 18], (uint8_t)digit[three >> 12 & 63],
            have > 1 ? (uint8_t)digit[three >> 6 & 63] : (uint8_t)'=',
            have > 2 ? (uint8_t)digit[three & 63] : (uint8_t)'=' };
        if (!put(t, out, 4)) return 0;
    }
    return 1;
}

/* A value as text; 0 where only the plain decoder knows how (binary, too). */
static int put_value(struct text *t, const struct value *v) {
    switch (v->kind) {
    case V_BOOL:
        return v->number ? put(t, (const uint8_t *)"true", 4) : put(t, (const uint8_t *)"false", 5);
    case V_UNSIGNED: return put_number(t, v->number, 0);
    case V_SIGNED: case V_TIME: return put_signed(t, v->number);
    case V_UUID: return put_uuid(t, v->bytes.at);
    case V_STRING: case V_SYMBOL: return put(t, v->bytes.at, v->bytes.size);
    default: return 0;
    }
}

#define MOST_KEYS 64

/* Keys are told apart by kind and content; integers of every width are one kind. */
static int same_key(const struct value *a, const struct value *b) {
    int number_a = a->kind == V_UNSIGNED || a->kind == V_SIGNED;
    int number_b = b->kind == V_UNSIGNED || b->kind == V_SIGNED;
    if (number_a != number_b) return 0;
    if (number_a) {
        /* Only a negative signed number can have the bits of another one. */
        int low_a = a->kind == V_SIGNED && (int64_t)a->number < 0;
        int low_b = b->kind == V_SIGNED && (int64_t)b->number < 0;
        return low_a == low_b && a->number == b->number;
    }
    return a->bytes.size == b->bytes.size && !memcmp(a->bytes.at, b->bytes.at, (size_t)a->bytes.size);
}

/* A map with simple values. Keys are strings (named = 1) or symbols and integers (named = 0). */
static int read_map(const uint8_t **at, const uint8_t *end, int named, struct map *out) {
    int64_t count;
    const uint8_t *stop;
    if (!read_frame(at, end, 1, &count, &stop) || count % 2 || count / 2 > MOST_KEYS) return 0;
    struct value keys[MOST_KEYS];
    const uint8_t *p = *at;
    for (int64_t i = 0; i < count / 2; i++) {
        struct value *key = &keys[i], value;
        if (!read_value(&p, stop, key) || !read_value(&p, stop, &value)) return 0;
        int good = named ? key->kind == V_STRING
                         : key->kind == V_SYMBOL || key->kind == V_UNSIGNED || key->kind == V_SIGNED;
        if (!good) return 0;
        for (int64_t k = 0; k < i; k++)
            if (same_key(&keys[k], key)) return 0;
        if (!out) continue;
        if (out->used >= out->capacity) return 0;
        if (!put_value(&out->keys, key)) return 0;
        if (value.kind != V_NULL) {
            if (!put_value(&out->values, &value)) return 0;
            set_bit(out->values.valid, out->used);
        } else {
            out->values.valid[out->used >> 3] &= (uint8_t)~(1u << (out->used & 7));
        }
        out->used++;
        out->keys.offsets[out->used] = (int32_t)out->keys.used;
        out->values.offsets[out->used] = (int32_t)out->values.used;
    }
    if (p != stop) return 0;
    *at = p;
    return 1;
}

/* A list of at most `most` simple values; the rest of `values` becomes null. */
static int read_list(const uint8_t **at, const uint8_t *end, struct value *values, int most) {
    int64_t count = 0;
    const uint8_t *p = *at, *stop;
    if (end - p >= 1 && *p == 0x45) {
        stop = ++p;
    } else {
        if (!read_frame(&p, end, 0, &count, &stop) || count > most) return 0;
        for (int64_t i = 0; i < count; i++)
            if (!read_value(&p, stop, &values[i])) return 0;
    }
    for (int64_t i = count; i < most; i++) values[i].kind = V_NULL;
    if (p != stop) return 0;
    *at = p;
    return 1;
}

static int is_integer(const struct value *v) { return v->kind == V_UNSIGNED || v->kind == V_SIGNED; }

static int good_header(const struct value *v) {
    for (int i = 0; i < 5; i++) {
        if (v[i].kind == V_NULL) continue;
        if (i == 0 || i == 3 ? v[i].kind != V_BOOL : !is_integer(&v[i])) return 0;
    }
    return 1;
}

/* Other integers than ulong are no ids; the plain decoder says of which type they are. */
static int good_id(const struct value *v) {
    return v->code == 0x80 || v->code == 0x53 || v->code == 0x44 || v->kind == V_UUID
        || v->kind == V_BINARY || v->kind == V_STRING;
}

static int good_properties(const struct value *v) {
    static const int kinds[13] = { -1, V_BINARY, V_STRING, V_STRING, V_STRING, -1, V_SYMBOL,
                                   V_SYMBOL, V_TIME, V_TIME, V_STRING, -2, V_STRING };
    for (int i = 0; i < 13; i++) {
        if (v[i].kind == V_NULL) continue;
        int good = kinds[i] == -1 ? good_id(&v[i]) : kinds[i] == -2 ? is_integer(&v[i])
                                                                    : v[i].kind == kinds[i];
        if (!good) return 0;
    }
    return 1;
}

static int emit_text(struct text *t, const struct value *v, int64_t row) {
    if (!t || v->kind == V_NULL) return 1;
    set_bit(t->valid, row);
    return put(t, v->bytes.at, v->bytes.size);
}

static int emit_id(struct text *id, struct text *type, const struct value *v, int64_t row) {
    if (v->kind == V_NULL) return 1;
    if (id) {
        int done = v->kind == V_BINARY ? put_base64(id, v->bytes.at, v->bytes.size) : put_value(id, v);
        if (!done) return 0;
        set_bit(id->valid, row);
    }
    if (type) {
        const char *name = v->kind == V_BINARY ? "binary" : v->kind == V_UUID ? "uuid"
                         : v->kind == V_STRING ? "string" : "ulong";
        if (!put(type, (const uint8_t *)name, (int64_t)strlen(name))) return 0;
        set_bit(type->valid, row);
    }
    return 1;
}

static void emit_time(struct number *n, const struct value *v, int64_t row) {
    if (!n || v->kind == V_NULL) return;
    /* As MIN_MS and MAX_MS of the plain decoder. */
    int64_t most = INT64_MAX / 1000, least = -(INT64_MAX / 1000);
    int64_t ms = (int64_t)v->number;
    n->values[row] = (ms > most ? most : ms < least ? least : ms) * 1000;
    set_bit(n->valid, row);
}

/* Any integer as int64, at most its greatest. */
static void emit_number(struct number *n, const struct value *v, int64_t row) {
    if (!n || v->kind == V_NULL) return;
    int beyond = v->kind == V_UNSIGNED && v->number > INT64_MAX;
    n->values[row] = beyond ? INT64_MAX : (int64_t)v->number;
    set_bit(n->valid, row);
}

static void emit_header(struct columns *c, const struct value *v, int64_t row) {
    set_bit(c->header, row);
    for (int i = 0; i < H_COUNT; i++) emit_number(c->headers[i], &v[i], row);
}

static int emit_properties(struct columns *c, const struct value *v, int64_t row) {
    set_bit(c->properties, row);
    if (!emit_id(c->texts[P_MESSAGE_ID], c->texts[P_MESSAGE_ID_TYPE], &v[0], row)) return 0;
    if (!emit_id(c->texts[P_CORRELATION_ID], c->texts[P_CORRELATION_ID_TYPE], &v[5], row)) return 0;
    static const int from[9] = { 1, 2, 3, 4, 6, 7, 10, 12, -1 };
    static const int to[9] = { P_USER_ID, P_TO, P_SUBJECT, P_REPLY_TO, P_CONTENT_TYPE,
                               P_CONTENT_ENCODING, P_GROUP_ID, P_REPLY_TO_GROUP_ID, -1 };
    for (int i = 0; from[i] >= 0; i++)
        if (!emit_text(c->texts[to[i]], &v[from[i]], row)) return 0;
    emit_time(c->numbers[P_EXPIRY], &v[8], row);
    emit_time(c->numbers[P_CREATION], &v[9], row);
    emit_number(c->numbers[P_GROUP_SEQUENCE], &v[11], row);
    return 1;
}

enum { HEADER = 0x70, DELIVERY, ANNOTATIONS, PROPERTIES, APPLICATION, DATA, SEQUENCE, VALUE, FOOTER };

static int put_kind(struct columns *c, const char *name) {
    return !c->body_kind || put(c->body_kind, (const uint8_t *)name, (int64_t)strlen(name));
}

/* Whether a message is certainly no AMQP 1.0: it does not begin with a section. A descriptor is
 * 0x53 and one byte, or another integer or a symbol, which nobody sends: the plain decoder's. */
static int no_section(const uint8_t *p, int64_t size) {
    if (size < 4 || p[0] != 0x00) return 1;
    switch (p[1]) {
    case 0x50: case 0x51: case 0x52: case 0x53: case 0x54: case 0x55:
        return p[2] < HEADER || p[2] > FOOTER;
    case 0x60: case 0x61: case 0x70: case 0x71: case 0x80: case 0x81: case 0xa3: case 0xb3:
        return 0;
    default: return 1;
    }
}

/* One message into row `row`; 0 if it is left to the plain decoder, as one without bytes is. */
static int decode(struct columns *c, const uint8_t *p, int64_t size, int64_t row) {
    const uint8_t *end = p + size;
    int last = 0, body = 0;
    if (!size) return 0;
    if (c->format == FORMAT_BYTES || (c->format == FORMAT_AUTO && no_section(p, size)))
        return put_kind(c, "bytes") && (!c->body || put(c->body, p, size));
    while (p < end) {
        if (end - p < 3 || p[0] != 0x00 || p[1] != 0x53) return 0;
        int section = p[2];
        p += 3;
        if (section < HEADER || section > FOOTER || section == SEQUENCE) return 0;
        if (section < last || (section == last && section != DATA)) return 0;
        if (body && section != FOOTER && section != body) return 0;
        last = section;
        struct value values[13], value;
        switch (section) {
        case HEADER:
            if (!read_list(&p, end, values, H_COUNT) || !good_header(values)) return 0;
            if (c->header) emit_header(c, values, row);
            break;
        case PROPERTIES:
            if (!read_list(&p, end, values, 13) || !good_properties(values)) return 0;
            if (c->properties && !emit_properties(c, values, row)) return 0;
            break;
        case DELIVERY: case ANNOTATIONS: case APPLICATION: case FOOTER: {
            struct map *out = section == DELIVERY ? c->delivery_annotations
                            : section == ANNOTATIONS ? c->message_annotations
                            : section == APPLICATION ? c->application_properties : c->footer;
            if (!read_map(&p, end, section == APPLICATION, out)) return 0;
            if (out) set_bit(out->valid, row);
            break;
        }
        case DATA:
            body = DATA;
            if (!read_value(&p, end, &value) || value.kind != V_BINARY) return 0;
            if (c->body && !put(c->body, value.bytes.at, value.bytes.size)) return 0;
            break;
        default:
            body = VALUE;
            if (!read_value(&p, end, &value)) return 0;
            if (value.kind != V_BINARY && value.kind != V_STRING && value.kind != V_SYMBOL) return 0;
            if (c->body && !put(c->body, value.bytes.at, value.bytes.size)) return 0;
            break;
        }
    }
    return put_kind(c, body == DATA ? "data" : body == VALUE ? "value" : "none");
}

static void clear_bit(uint8_t *bits, int64_t i) { bits[i >> 3] &= (uint8_t)~(1u << (i & 7)); }

struct map_mark { int64_t used, keys, values; };

static struct map_mark mark(const struct map *m) {
    struct map_mark at = { m->used, m->keys.used, m->values.used };
    return at;
}

static void undo(struct map *m, struct map_mark at, int64_t row) {
    m->used = at.used;
    m->keys.used = at.keys;
    m->values.used = at.values;
    clear_bit(m->valid, row);
}

/* Ask memory for a message while the one before it is decoded; of a long one for its beginning, the
 * processor sees the rest coming by itself. */
static void fetch_ahead(const uint8_t *p, int32_t size) {
    int32_t most = size < FETCHED ? size : FETCHED;
    for (int32_t at = 0; at < most; at += LINE) __builtin_prefetch(p + at);
}

/* Decode messages [0, count). Validity bits must be zero before. */
EXPORT void coldstream_columns(struct columns *c) {
    struct text *texts[P_COUNT + 2];
    struct number *numbers[P_COUNT + H_COUNT];
    struct map *maps[4], *const all[4] = { c->application_properties, c->message_annotations,
                                           c->delivery_annotations, c->footer };
    int64_t before[P_COUNT + 2];
    struct map_mark marks[4];
    int text_count = 0, number_count = 0, map_count = 0;
    for (int i = 0; i < P_COUNT; i++) {
        if (c->texts[i]) texts[text_count++] = c->texts[i];
        if (c->numbers[i]) numbers[number_count++] = c->numbers[i];
    }
    for (int i = 0; i < H_COUNT; i++)
        if (c->headers[i]) numbers[number_count++] = c->headers[i];
    for (int i = 0; i < 4; i++)
        if (all[i]) maps[map_count++] = all[i];
    if (c->body_kind) texts[text_count++] = c->body_kind;
    if (c->body) texts[text_count++] = c->body;
    c->left_count = 0;
    for (int64_t row = 0; row < c->count; row++) {
        if (row + 1 < c->count) fetch_ahead(c->messages[row + 1], c->lengths[row + 1]);
        for (int i = 0; i < text_count; i++) before[i] = texts[i]->used;
        for (int i = 0; i < map_count; i++) marks[i] = mark(maps[i]);
        if (!decode(c, c->messages[row], c->lengths[row], row)) {
            c->left[c->left_count++] = row;
            for (int i = 0; i < text_count; i++) {
                texts[i]->used = before[i];
                if (texts[i]->valid) clear_bit(texts[i]->valid, row);
            }
            for (int i = 0; i < number_count; i++) clear_bit(numbers[i]->valid, row);
            if (c->properties) clear_bit(c->properties, row);
            if (c->header) clear_bit(c->header, row);
            for (int i = 0; i < map_count; i++) undo(maps[i], marks[i], row);
        }
        for (int i = 0; i < text_count; i++) texts[i]->offsets[row + 1] = (int32_t)texts[i]->used;
        for (int i = 0; i < map_count; i++) maps[i]->offsets[row + 1] = (int32_t)maps[i]->used;
    }
}

/* The wire bytes of messages one after the other. */
EXPORT int32_t coldstream_raw(const uint8_t *const *messages, const int32_t *lengths, int64_t count,
                              struct text *out) {
    for (int64_t row = 0; row < count; row++) {
        if (!put(out, messages[row], lengths[row])) return 0;
        out->offsets[row + 1] = (int32_t)out->used;
    }
    return 1;
}
