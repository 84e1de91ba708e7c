/* nvtx_steps.c - a training loop that knows nothing but the vendor's NVTX: steps by name, by payload, and as ranges across threads. */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <string.h>

static void busy(volatile long *sum) {
    for (long i = 0; i < 200000; i++) {
        *sum += i;
    }
}

int main(int count, char **words) {
    const char *how = count > 1 ? words[1] : "name";
    volatile long sum = 0;
    for (int step = 5; step < 25; step++) {
        char text[32];
        nvtxRangeId_t range = 0;
        snprintf(text, sizeof text, strcmp(how, "payload") == 0 ? "step" : "step_%d", step);
        if (strcmp(how, "payload") == 0) {
            nvtxEventAttributes_t a;
            memset(&a, 0, sizeof a);
            a.version = NVTX_VERSION;
            a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
            a.messageType = NVTX_MESSAGE_TYPE_ASCII;
            a.message.ascii = text;
            a.payloadType = NVTX_PAYLOAD_TYPE_INT32;
            a.payload.iValue = step;
            nvtxRangePushEx(&a);
        } else if (strcmp(how, "handle") == 0) {
            range = nvtxRangeStartA(text);
        } else {
            nvtxRangePushA(text);
        }
        nvtxRangePushA("forward");
        busy(&sum);
        nvtxRangePop();
        if (strcmp(how, "handle") == 0) {
            nvtxRangeEnd(range);
        } else {
            nvtxRangePop();
        }
    }
    return sum == 0;
}
