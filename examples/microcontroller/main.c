/* Feeds numbers to the network and writes its first output to the serial port, in millionths, one line per step. */
#include "network/network.h"

#define STEPS 40
/* The data register of a serial port: that of USART2 on an STM32F4. On a real chip, switch on its clock and set its pins
   and its speed first; the emulator needs none of this. */
#define SERIAL_PORT (*(volatile uint32_t *)0x40004404u)
#define END_OF_TRANSMISSION 4u

int main(void);

/* one for each stream */
static network_state state;

static void write_number(int32_t number)
{
    char digits[12];
    uint32_t rest = number < 0 ? 0u - (uint32_t)number : (uint32_t)number;
    int count = 0;
    if (number < 0)
        SERIAL_PORT = '-';
    do {
        digits[count++] = (char)('0' + rest % 10u);
        rest /= 10u;
    } while (rest > 0);
    while (count > 0)
        SERIAL_PORT = (uint32_t)digits[--count];
    SERIAL_PORT = '\n';
}

int main(void)
{
    float input[NETWORK_INPUTS + 1], output[NETWORK_OUTPUTS];
    int32_t t, i;
    network_reset(&state);
    for (t = 0; t < STEPS; t++) {
        /* while a real program waits for its sensor */
        network_idle(&state);
        /* in place of a sensor: saw teeth */
        for (i = 0; i < NETWORK_INPUTS; i++)
            input[i] = (float)((t * (i + 1)) % 16 - 8) / 8.0f;
        network_step(&state, input);
        network_output(&state, output);
        write_number((int32_t)(1000000.0f * output[0]));
    }
    SERIAL_PORT = END_OF_TRANSMISSION;
    return 0;
}
