/* The first instructions after a reset: switch on the FPU, fill the memory, call main. */
#include <stdint.h>

int main(void);
void reset_handler(void);

/* from link.ld */
extern uint32_t stack_end, data_start, data_end, data_values, bss_start, bss_end;

void reset_handler(void)
{
    volatile uint32_t *const coprocessor_access = (volatile uint32_t *)0xE000ED88u;
    const uint32_t *from = &data_values;
    /* volatile: a compiler must not make a call of memcpy or memset of these loops */
    volatile uint32_t *to;
    *coprocessor_access |= 0xFu << 20;
    for (to = &data_start; to < &data_end; to++)
        *to = *from++;
    for (to = &bss_start; to < &bss_end; to++)
        *to = 0;
    main();
    for (;;) {
    }
}

/* A real project adds the handlers of its interrupts. */
__attribute__((section(".vectors"), used)) static const struct {
    uint32_t *stack;
    void (*reset)(void);
} vectors = {&stack_end, reset_handler};
