/* nvtx_ranges.c - a program that knows nothing but the vendor's NVTX. */
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <string.h>

static void *elsewhere(void *handle) {
    nvtxRangeEnd(*(nvtxRangeId_t *)handle);
    nvtxRangePushA("on a thread");
    nvtxRangePop();
    return NULL;
}

int main(void) {
    nvtxDomainHandle_t domain = nvtxDomainCreateA("library");
    nvtxStringHandle_t text = nvtxDomainRegisterStringA(domain, "registered");
    nvtxEventAttributes_t a;
    memset(&a, 0, sizeof a);
    a.version = NVTX_VERSION;
    a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    a.messageType = NVTX_MESSAGE_TYPE_ASCII;
    a.message.ascii = "with a value";
    a.payloadType = NVTX_PAYLOAD_TYPE_INT32;
    a.payload.iValue = -7;
    if (nvtxRangePushA("outer") != 0) {
        return 1;
    }
    if (nvtxRangePushEx(&a) != 1) {
        return 2;
    }
    a.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    a.message.registered = text;
    a.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    a.payload.ullValue = 1ull << 40;
    nvtxDomainRangePushEx(domain, &a);
    nvtxRangePop(); /* of "with a value", although the domain's range is above it */
    nvtxDomainRangePop(domain);
    nvtxRangePop();
    if (nvtxRangePop() >= 0) {
        return 3;
    }
    nvtxRangePushW(L"wide \u00e9\u20ac\U0001F600");
    nvtxRangePop();
    nvtxRangePushA(NULL);
    nvtxRangePop();
    nvtxRangeId_t range = nvtxRangeStartA("across threads");
    pthread_t thread;
    if (pthread_create(&thread, NULL, elsewhere, &range) || pthread_join(thread, NULL)) {
        return 4;
    }
    for (int i = 0; i < 100; i++) {
        nvtxRangePushA("deep");
    }
    for (int i = 0; i < 100; i++) {
        nvtxRangePop();
    }
    nvtxMarkA("a mark");
    nvtxDomainDestroy(domain);
    return 0;
}
