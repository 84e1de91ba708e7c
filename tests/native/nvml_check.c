/* Are the functions, structures and numbers of native/src/sampler/nvml_loader.h those of the vendor's header?
 *
 * Compiled with -DPOSTRUN_NVML_TYPES and the vendor's header, where the compiler compares; and without, where the sizes and places that it
 * prints are those of our own structures. */
#include <stddef.h>
#include <stdio.h>

#ifdef POSTRUN_NVML_TYPES
#include "nvml_vendor.h"
#endif
#include "sampler/nvml_loader.h"

#ifdef POSTRUN_NVML_TYPES
#define SAME(member, function) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(((struct nvml *)0)->member), __typeof__(&function)), #function)
SAME(init, nvmlInit_v2);
SAME(shutdown, nvmlShutdown);
SAME(driver_version, nvmlSystemGetDriverVersion);
SAME(count, nvmlDeviceGetCount_v2);
SAME(handle, nvmlDeviceGetHandleByIndex_v2);
SAME(uuid, nvmlDeviceGetUUID);
SAME(name, nvmlDeviceGetName);
SAME(utilization, nvmlDeviceGetUtilizationRates);
SAME(memory, nvmlDeviceGetMemoryInfo);
SAME(memory_v2, nvmlDeviceGetMemoryInfo_v2);
SAME(power, nvmlDeviceGetPowerUsage);
SAME(clock, nvmlDeviceGetClockInfo);
SAME(throttle_reasons, nvmlDeviceGetCurrentClocksThrottleReasons);
SAME(temperature, nvmlDeviceGetTemperature);
SAME(fields, nvmlDeviceGetFieldValues);
SAME(event_set, nvmlEventSetCreate);
SAME(register_events, nvmlDeviceRegisterEvents);
SAME(wait_event, nvmlEventSetWait_v2);
SAME(free_event_set, nvmlEventSetFree);
SAME(mig_mode, nvmlDeviceGetMigMode);
SAME(mig_count, nvmlDeviceGetMaxMigDeviceCount);
SAME(mig_handle, nvmlDeviceGetMigDeviceHandleByIndex);
#ifdef nvmlClocksEventReasonSwPowerCap
SAME(throttle_reasons, nvmlDeviceGetCurrentClocksEventReasons);
#endif
_Static_assert(NVML_MEMORY_V2 == nvmlMemory_v2, "version of the structure");
_Static_assert(NVML_SM_CLOCK == NVML_CLOCK_SM, "clock");
_Static_assert(NVML_TEXT >= NVML_DEVICE_UUID_V2_BUFFER_SIZE && NVML_TEXT >= NVML_DEVICE_NAME_V2_BUFFER_SIZE, "texts");
_Static_assert(NVML_TEXT >= NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE, "texts");
#define FIELD(own, theirs) _Static_assert((int)own == (int)theirs, #theirs)
_Static_assert(NVML_MEMORY_CLOCK == NVML_CLOCK_MEM, "clock");
_Static_assert(NVML_GPU_SENSOR == NVML_TEMPERATURE_GPU, "sensor");
_Static_assert(NVML_XID_EVENT == nvmlEventTypeXidCriticalError, "event");
_Static_assert((int)NVML_DOUBLE == (int)NVML_VALUE_TYPE_DOUBLE && (int)NVML_UNSIGNED == (int)NVML_VALUE_TYPE_UNSIGNED_INT, "types");
_Static_assert((int)NVML_UNSIGNED_LONG == (int)NVML_VALUE_TYPE_UNSIGNED_LONG, "types");
_Static_assert((int)NVML_UNSIGNED_LONG_LONG == (int)NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, "types");
_Static_assert((int)NVML_SIGNED_LONG_LONG == (int)NVML_VALUE_TYPE_SIGNED_LONG_LONG, "types");
#ifdef NVML_FI_DEV_PCIE_COUNT_TX_BYTES
_Static_assert((int)NVML_SIGNED == (int)NVML_VALUE_TYPE_SIGNED_INT, "types");
_Static_assert((int)NVML_UNSIGNED_SHORT == (int)NVML_VALUE_TYPE_UNSIGNED_SHORT, "types");
FIELD(NVML_PCIE_BYTES_SENT, NVML_FI_DEV_PCIE_COUNT_TX_BYTES);
FIELD(NVML_PCIE_BYTES_RECEIVED, NVML_FI_DEV_PCIE_COUNT_RX_BYTES);
FIELD(NVML_NVLINK_BYTES_SENT, NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES);
FIELD(NVML_NVLINK_BYTES_RECEIVED, NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES);
#endif
FIELD(NVML_ECC_CORRECTED_VOLATILE, NVML_FI_DEV_ECC_SBE_VOL_TOTAL);
FIELD(NVML_ECC_UNCORRECTED_VOLATILE, NVML_FI_DEV_ECC_DBE_VOL_TOTAL);
FIELD(NVML_ECC_CORRECTED_AGGREGATE, NVML_FI_DEV_ECC_SBE_AGG_TOTAL);
FIELD(NVML_ECC_UNCORRECTED_AGGREGATE, NVML_FI_DEV_ECC_DBE_AGG_TOTAL);
FIELD(NVML_HELD_BY_POWER, NVML_FI_DEV_PERF_POLICY_POWER);
FIELD(NVML_HELD_BY_HEAT, NVML_FI_DEV_PERF_POLICY_THERMAL);
FIELD(NVML_HELD_BY_SYNC_BOOST, NVML_FI_DEV_PERF_POLICY_SYNC_BOOST);
FIELD(NVML_HELD_BY_BOARD_LIMIT, NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT);
FIELD(NVML_HELD_BY_RELIABILITY, NVML_FI_DEV_PERF_POLICY_RELIABILITY);
FIELD(NVML_MEMORY_TEMPERATURE, NVML_FI_DEV_MEMORY_TEMP);
FIELD(NVML_ENERGY, NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION);
FIELD(NVML_NVLINK_KIB_SENT, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX);
FIELD(NVML_NVLINK_KIB_RECEIVED, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX);
FIELD(NVML_ROWS_CORRECTED, NVML_FI_DEV_REMAPPED_COR);
FIELD(NVML_ROWS_UNCORRECTED, NVML_FI_DEV_REMAPPED_UNC);
FIELD(NVML_ROWS_PENDING, NVML_FI_DEV_REMAPPED_PENDING);
FIELD(NVML_ROWS_FAILED, NVML_FI_DEV_REMAPPED_FAILURE);
#define CODE(own, theirs) _Static_assert((int)own == (int)theirs, #theirs)
CODE(NVML_OK, NVML_SUCCESS);
CODE(NVML_UNINITIALIZED, NVML_ERROR_UNINITIALIZED);
CODE(NVML_INVALID_ARGUMENT, NVML_ERROR_INVALID_ARGUMENT);
CODE(NVML_NOT_SUPPORTED, NVML_ERROR_NOT_SUPPORTED);
CODE(NVML_NO_PERMISSION, NVML_ERROR_NO_PERMISSION);
CODE(NVML_NOT_FOUND, NVML_ERROR_NOT_FOUND);
CODE(NVML_INSUFFICIENT_POWER, NVML_ERROR_INSUFFICIENT_POWER);
CODE(NVML_DRIVER_NOT_LOADED, NVML_ERROR_DRIVER_NOT_LOADED);
CODE(NVML_TIMED_OUT, NVML_ERROR_TIMEOUT);
CODE(NVML_IRQ_ISSUE, NVML_ERROR_IRQ_ISSUE);
CODE(NVML_LIBRARY_NOT_FOUND, NVML_ERROR_LIBRARY_NOT_FOUND);
CODE(NVML_FUNCTION_NOT_FOUND, NVML_ERROR_FUNCTION_NOT_FOUND);
CODE(NVML_GPU_IS_LOST, NVML_ERROR_GPU_IS_LOST);
CODE(NVML_RESET_REQUIRED, NVML_ERROR_RESET_REQUIRED);
CODE(NVML_VERSION_MISMATCH, NVML_ERROR_LIB_RM_VERSION_MISMATCH);
CODE(NVML_IN_USE, NVML_ERROR_IN_USE);
CODE(NVML_NO_MEMORY, NVML_ERROR_MEMORY);
CODE(NVML_NO_DATA, NVML_ERROR_NO_DATA);
CODE(NVML_ARGUMENT_VERSION, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
#if NVML_API_VERSION >= 12
CODE(NVML_IS_DEPRECATED, NVML_ERROR_DEPRECATED);
CODE(NVML_NOT_READY, NVML_ERROR_NOT_READY);
#endif
CODE(NVML_UNKNOWN, NVML_ERROR_UNKNOWN);
/* The reasons that the report counts as heat and as power: analysis/machine/gpu_clocks.py. */
_Static_assert(nvmlClocksThrottleReasonSwPowerCap == 4 && nvmlClocksThrottleReasonHwPowerBrakeSlowdown == 128, "power");
_Static_assert(nvmlClocksThrottleReasonSwThermalSlowdown == 32 && nvmlClocksThrottleReasonHwThermalSlowdown == 64, "heat");
_Static_assert(nvmlClocksThrottleReasonHwSlowdown == 8 && nvmlClocksThrottleReasonGpuIdle == 1, "slowdown by the hardware");
#endif

#define PLACE(structure, member) printf(#member " %zu %zu\n", offsetof(struct structure, member), sizeof(((struct structure *)0)->member))
int main(void) {
    printf("%zu %zu %zu\n", sizeof(nvml_device), sizeof(nvml_result), sizeof(nvml_clock));
    PLACE(nvml_utilization, gpu);
    PLACE(nvml_utilization, memory);
    PLACE(nvml_memory, total);
    PLACE(nvml_memory, free);
    PLACE(nvml_memory, used);
    PLACE(nvml_memory_v2, version);
    PLACE(nvml_memory_v2, total);
    PLACE(nvml_memory_v2, reserved);
    PLACE(nvml_memory_v2, free);
    PLACE(nvml_memory_v2, used);
    PLACE(nvml_field, fieldId);
    PLACE(nvml_field, scopeId);
    PLACE(nvml_field, valueType);
    PLACE(nvml_field, nvmlReturn);
    PLACE(nvml_field, value);
    PLACE(nvml_event, device);
    PLACE(nvml_event, eventType);
    PLACE(nvml_event, eventData);
    PLACE(nvml_event, computeInstanceId);
    printf("%zu %zu %zu\n", sizeof(nvml_sensor), sizeof(struct nvml_field), sizeof(struct nvml_event));
    printf("%zu %zu %zu\n", sizeof(struct nvml_utilization), sizeof(struct nvml_memory), sizeof(struct nvml_memory_v2));
    return 0;
}
