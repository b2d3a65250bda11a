/* CRC-32 (that of zlib) by carry-less multiplication, on x86-64; elsewhere there is none, and whoever
 * calls does without. V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
 * Instruction" (Intel, 2009): bytes are folded onto others 16 (or, with AVX-512, 256) bytes ahead.
 */
#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#define CRC_TARGET __attribute__((target("sse4.1,pclmul")))
#define CRC_WIDE_TARGET __attribute__((target("sse4.1,pclmul,avx512f,vpclmulqdq")))

/* x^(D+32) and x^(D-32) modulo the polynomial, reflected: what folds over D bits. */
#define FOLD_128 0x1751997d0, 0x0ccaa009e
#define FOLD_512 0x154442bd4, 0x1c6e41596
#define FOLD_2048 0x11542778a, 0x1322d1430

enum { CRC_NONE = 0, CRC_NARROW = 1, CRC_WIDE = 2 };

/* Bytes that are asked for from memory before their turn. */
enum { CRC_AHEAD = 2048 };

/* What this processor can, and the system lets it. */
static int crc_found(void) {
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 1 & 1) || !(c >> 19 & 1)) return CRC_NONE;
    if (!(c >> 27 & 1)) return CRC_NARROW; /* no XGETBV */
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 0xe6) != 0xe6) return CRC_NARROW; /* registers of AVX-512 are not kept */
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return CRC_NARROW;
    return (b >> 16 & 1) && (c >> 10 & 1) ? CRC_WIDE : CRC_NARROW;
}

/* Found out once: in a virtual machine the question takes as long as a CRC over megabytes. */
static int crc_ability(void) {
    static _Atomic int known = -1;
    int ability = known;
    if (ability < 0) known = ability = crc_found();
    return ability;
}

/* Bytes that are too few to fold, four bits at a time. */
static uint32_t crc_few(uint32_t crc, const uint8_t *p, size_t n) {
    static const uint32_t table[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
        0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
        0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
    };
    for (; n; n--) {
        crc ^= *p++;
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return crc;
}

CRC_TARGET static inline __m128i crc_pair(uint64_t low, uint64_t high) {
    return _mm_set_epi64x((long long)high, (long long)low);
}

CRC_TARGET static inline __m128i crc_load(const uint8_t *p) {
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

CRC_TARGET static inline __m128i crc_fold(__m128i x, __m128i by, __m128i onto) {
    __m128i low = _mm_clmulepi64_si128(x, by, 0x00), high = _mm_clmulepi64_si128(x, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), onto);
}

/* 16 bytes that have the same remainder as all before them, and n more. */
CRC_TARGET static uint32_t crc_finish(__m128i x, const uint8_t *p, size_t n) {
    const __m128i by = crc_pair(FOLD_128), low = _mm_setr_epi32(-1, 0, -1, 0);
    const __m128i barrett = crc_pair(0x1db710641, 0x1f7011641);
    for (; n >= 16; n -= 16, p += 16) x = crc_fold(x, by, crc_load(p));
    __m128i y = _mm_clmulepi64_si128(x, by, 0x10);
    x = _mm_xor_si128(_mm_srli_si128(x, 8), y);
    y = _mm_srli_si128(x, 4);
    x = _mm_clmulepi64_si128(_mm_and_si128(x, low), crc_pair(0x163cd6124, 0), 0x00);
    x = _mm_xor_si128(x, y);
    y = _mm_clmulepi64_si128(_mm_and_si128(x, low), barrett, 0x10);
    y = _mm_clmulepi64_si128(_mm_and_si128(y, low), barrett, 0x00);
    return crc_few((uint32_t)_mm_extract_epi32(_mm_xor_si128(x, y), 1), p, n);
}

CRC_TARGET static uint32_t crc_narrow(uint32_t crc, const uint8_t *p, size_t n) {
    __m128i x = _mm_xor_si128(crc_load(p), _mm_cvtsi32_si128((int)crc));
    if (n < 64) return crc_finish(x, p + 16, n - 16);
    const __m128i far = crc_pair(FOLD_512), near = crc_pair(FOLD_128);
    __m128i y = crc_load(p + 16), z = crc_load(p + 32), w = crc_load(p + 48);
    for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
        x = crc_fold(x, far, crc_load(p));
        y = crc_fold(y, far, crc_load(p + 16));
        z = crc_fold(z, far, crc_load(p + 32));
        w = crc_fold(w, far, crc_load(p + 48));
    }
    x = crc_fold(crc_fold(crc_fold(x, near, y), near, z), near, w);
    return crc_finish(x, p, n);
}

CRC_WIDE_TARGET static inline __m512i crc_fold_wide(__m512i x, __m512i by, __m512i onto) {
    __m512i low = _mm512_clmulepi64_epi128(x, by, 0x00);
    __m512i high = _mm512_clmulepi64_epi128(x, by, 0x11);
    return _mm512_ternarylogic_epi64(low, high, onto, 0x96); /* exclusive or of all three */
}

/* At least 256 bytes. */
CRC_WIDE_TARGET static uint32_t crc_wide(uint32_t crc, const uint8_t *p, size_t n) {
    const __m512i far = _mm512_broadcast_i32x4(crc_pair(FOLD_2048));
    const __m512i near = _mm512_broadcast_i32x4(crc_pair(FOLD_512));
    const __m128i by = crc_pair(FOLD_128);
    const __m512i first = _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc));
    __m512i x = _mm512_xor_si512(_mm512_loadu_si512(p), first), y = _mm512_loadu_si512(p + 64);
    __m512i z = _mm512_loadu_si512(p + 128), w = _mm512_loadu_si512(p + 192);
    for (p += 256, n -= 256; n >= 256; p += 256, n -= 256) {
        /* The processor's own fetching ahead ends at each page. */
        for (int line = 0; line < 256; line += 64)
            _mm_prefetch((const char *)p + CRC_AHEAD + line, _MM_HINT_T0);
        x = crc_fold_wide(x, far, _mm512_loadu_si512(p));
        y = crc_fold_wide(y, far, _mm512_loadu_si512(p + 64));
        z = crc_fold_wide(z, far, _mm512_loadu_si512(p + 128));
        w = crc_fold_wide(w, far, _mm512_loadu_si512(p + 192));
    }
    x = crc_fold_wide(crc_fold_wide(crc_fold_wide(x, near, y), near, z), near, w);
    __m128i r = crc_fold(_mm512_castsi512_si128(x), by, _mm512_extracti32x4_epi32(x, 1));
    r = crc_fold(r, by, _mm512_extracti32x4_epi32(x, 2));
    r = crc_fold(r, by, _mm512_extracti32x4_epi32(x, 3));
    return crc_finish(r, p, n);
}

static uint32_t crc_of(int ability, uint32_t before, const uint8_t *p, int64_t size) {
    size_t n = (size_t)size;
    uint32_t crc = ~before;
    if (n < 16) return ~crc_few(crc, p, n);
    return ~(ability == CRC_WIDE && n >= 256 ? crc_wide(crc, p, n) : crc_narrow(crc, p, n));
}

#else

enum { CRC_NONE = 0 };
static int crc_ability(void) { return CRC_NONE; }
static uint32_t crc_of(int ability, uint32_t before, const uint8_t *p, int64_t size) {
    (void)ability, (void)p, (void)size;
    return before;
}

#endif

/* a * b modulo the polynomial, reflected: bit 31 is x^0. */
static uint32_t crc_times(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (int bit = 31; bit >= 0; bit--) {
        product ^= b & (0u - (a >> bit & 1));
        b = b >> 1 ^ (0xedb88320 & (0u - (b & 1)));
    }
    return product;
}

/* x^(8 * size) modulo the polynomial, of a size below 2^32. */
static uint32_t crc_power(int64_t size) {
    static const uint32_t squares[32] = { /* x^8, x^16, x^32 and so on */
        0x00800000, 0x00008000, 0xedb88320, 0xb1e6b092, 0xa06a2517, 0xed627dae,
        0x88d14467, 0xd7bbfe6a, 0xec447f11, 0x8e7ea170, 0x6427800e, 0x4d47bae0,
        0x09fe548f, 0x83852d0f, 0x30362f1a, 0x7b5a9cc3, 0x31fec169, 0x9fec022a,
        0x6c8dedc4, 0x15d6874d, 0x5fde7a4e, 0xbad90e37, 0x2e4e5eef, 0x4eaba214,
        0xa8a472c0, 0x429a969e, 0x148d302a, 0xc40ba6d0, 0xc4e22c3c, 0x40000000,
        0x20000000, 0x08000000,
    };
    uint32_t power = 1u << 31;
    for (int bit = 0; bit < 32; bit++)
        if (size >> bit & 1) power = crc_times(squares[bit], power);
    return power;
}
