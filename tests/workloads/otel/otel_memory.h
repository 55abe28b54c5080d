/* The USDTs of OpenTelemetry's otel_memory provider, without <sys/sdt.h>: notes as SystemTap defines them
 * ("User Space Probe Implementation"), each probe a nop, with a semaphore that says whether anybody listens.
 */
#include <stddef.h>
#include <stdint.h>

#define SEMAPHORE(name) \
    volatile unsigned short name __attribute__((section(".probes"), visibility("hidden")))

SEMAPHORE(otel_memory_alloc_semaphore);
SEMAPHORE(otel_memory_free_semaphore);

#define NOTE(name, arguments)                                                                  \
    "990: nop\n"                                                                               \
    ".pushsection .note.stapsdt,\"\",\"note\"\n"                                               \
    ".balign 4\n"                                                                              \
    ".4byte 992f-991f, 994f-993f, 3\n"                                                         \
    "991: .asciz \"stapsdt\"\n"                                                                \
    "992: .balign 4\n"                                                                         \
    "993: .8byte 990b, _.stapsdt.base, otel_memory_" name "_semaphore\n"                       \
    ".asciz \"otel_memory\"\n"                                                                 \
    ".asciz \"" name "\"\n"                                                                    \
    ".asciz \"" arguments "\"\n"                                                               \
    "994: .balign 4\n"                                                                         \
    ".popsection\n"                                                                            \
    ".ifndef _.stapsdt.base\n"                                                                 \
    ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"                    \
    ".weak _.stapsdt.base\n"                                                                   \
    ".hidden _.stapsdt.base\n"                                                                 \
    "_.stapsdt.base: .space 1\n"                                                               \
    ".size _.stapsdt.base, 1\n"                                                                \
    ".popsection\n"                                                                            \
    ".endif\n"

/* The probe only, whether anybody listens or not. */
#define FIRE_ALLOC(pointer, size, weighted)                                                    \
    __asm__ volatile(NOTE("alloc", "8@%0 8@%1 8@%2")                                           \
                     : : "nor"(pointer), "nor"(size), "nor"(weighted) : "memory")

#define FIRE_FREE(pointer) __asm__ volatile(NOTE("free", "8@%0") : : "nor"(pointer) : "memory")
