// SPDX-License-Identifier: Apache-2.0
/* A libnvidia-ml.so.1 with NVML's real signatures (nvml.h of CUDA 12), whose GPUs are lines of a text file.
 *
 * NVML_STUB names the file; it is read again at every call, so a test changes the machine by replacing it. A line is
 * "key value"; a key that starts with "N." belongs to GPU N. What is not in the file has a default.
 *
 *   gpus 2                     how many GPUs
 *   init 9                     what nvmlInit returns
 *   fail.FUNCTION 3            an error of a function, of all GPUs;   N.fail.FUNCTION 3   of one
 *   fail.field.186 3           an error of a field;                    fail.gpm.2 3        of a GPM metric
 *   delay.FUNCTION 500000      microseconds that a call takes
 *   N.pids 12,34               processes that compute on the GPU
 *   N.util 80 / N.util2 20     GPU utilization in even and odd seconds of real time
 *   N.lost 1                   every call for this GPU says that it is lost
 *   N.pcie_bps N.nvlink_bps N.power_mw N.used N.sm_mhz N.mem_mhz N.reasons N.gpm   values
 *   pcie_wide 1                PCIe counters of 64 bits instead of 32
 *   no_stamps 1                fields without a time stamp
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15 };
enum { MOST_GPUS = 16, GRID_US = 166667, TEXT = 96 };

typedef int nvmlReturn_t;
typedef struct { int index; } *nvmlDevice_t;
typedef union { double dVal; int siVal; unsigned int uiVal; unsigned long ulVal; unsigned long long ullVal; } value_t;
typedef struct { unsigned long long timeStamp; value_t sampleValue; } sample_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned int gpu, memory; } rates_t;
typedef struct { unsigned int pid; unsigned long long usedGpuMemory; unsigned int gpuInstance, computeInstance; } process_t;
typedef struct { unsigned int pid; unsigned long long timeStamp; unsigned int smUtil, memUtil, encUtil, decUtil; } process_sample_t;
typedef struct {
    unsigned int fieldId, scopeId;
    long long timestamp, latencyUsec;
    int valueType, nvmlReturn;
    value_t value;
} field_t;
typedef struct { unsigned long long monotonic_us; } gpm_sample_t;
typedef struct {
    unsigned int metricId;
    nvmlReturn_t nvmlReturn;
    double value;
    struct { char *shortName, *longName, *unit; } metricInfo;
} gpm_metric_t;
typedef struct { unsigned int version, numMetrics; gpm_sample_t *sample1, *sample2; gpm_metric_t metrics[]; } gpm_get_t;
typedef struct { unsigned int version, isSupportedDevice; } gpm_support_t;

static struct { int index; } devices[MOST_GPUS];

/* Return the text after a key in the script, or NULL; valid until the next call in this thread. */
static const char *script(const char *key) {
    static __thread char line[512];
    const char *path = getenv("NVML_STUB");
    FILE *file = path ? fopen(path, "re") : NULL;
    const char *found = NULL;
    size_t length = strlen(key);
    while (file && !found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, key, length) && line[length] == ' ')
            found = line + length + 1;
    }
    if (file)
        fclose(file);
    return found;
}

static long long number(const char *key, long long otherwise) {
    const char *text = script(key);
    return text ? atoll(text) : otherwise;
}

static long long gpu_number(nvmlDevice_t device, const char *key, long long otherwise) {
    char name[TEXT];
    snprintf(name, sizeof name, "%d.%s", device->index, key);
    return number(name, otherwise);
}

static long long now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

/* What every call does first: take its time, and fail if the script says so. */
static nvmlReturn_t begin(nvmlDevice_t device, const char *function) {
    char key[TEXT];
    snprintf(key, sizeof key, "delay.%s", function);
    long long delay_us = number(key, 0);
    for (; delay_us > 0; delay_us -= 100000)
        usleep(delay_us < 100000 ? delay_us : 100000);
    if (device && gpu_number(device, "lost", 0))
        return GPU_IS_LOST;
    snprintf(key, sizeof key, "fail.%s", function);
    return device ? gpu_number(device, key, number(key, SUCCESS)) : number(key, SUCCESS);
}

#define BEGIN(device)                                                                                                  \
    do {                                                                                                               \
        nvmlReturn_t failed = begin((nvmlDevice_t)(device), __func__);                                                 \
        if (failed)                                                                                                    \
            return failed;                                                                                             \
    } while (0)

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    BEGIN(NULL);
    return number("init", SUCCESS);
}
nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlShutdown(void) {
    const char *told = getenv("NVML_STUB_SHUTDOWN");
    FILE *file = told ? fopen(told, "ae") : NULL;
    if (file) {
        fputs("shutdown\n", file);
        fclose(file);
    }
    return SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result) { return "an error of the stub"; }

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    BEGIN(NULL);
    snprintf(version, length, "580.00.stub");
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    BEGIN(NULL);
    *count = number("gpus", 1);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    if (index >= MOST_GPUS || index >= number("gpus", 1))
        return INVALID_ARGUMENT;
    devices[index].index = index;
    *device = (nvmlDevice_t)&devices[index];
    BEGIN(*device);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
    BEGIN(device);
    snprintf(name, length, "Stub GPU");
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    BEGIN(device);
    snprintf(uuid, length, "GPU-%08d-0000-0000-0000-000000000000", device->index);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) {
    BEGIN(device);
    *minor = gpu_number(device, "minor", device->index);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, memory_t *memory) {
    BEGIN(device);
    memory->total = 80LL << 30;
    memory->used = gpu_number(device, "used", 1 << 30);
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int type, unsigned int *mhz) {
    BEGIN(device);
    if (type != 1 && type != 2) /* NVML_CLOCK_SM, NVML_CLOCK_MEM */
        return INVALID_ARGUMENT;
    *mhz = type == 1 ? gpu_number(device, "sm_mhz", 1980) : gpu_number(device, "mem_mhz", 2619);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons) {
    BEGIN(device);
    *reasons = gpu_number(device, "reasons", 0);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons) {
    BEGIN(device);
    *reasons = gpu_number(device, "reasons", 0);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatts) {
    BEGIN(device);
    *milliwatts = gpu_number(device, "power_mw", 350000);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, int counter, unsigned int *kilobytes) {
    BEGIN(device);
    usleep(20000);
    *kilobytes = gpu_number(device, "pcie_bps", 1000000000) / 1000 / (counter + 1);
    return SUCCESS;
}

static long long utilization(nvmlDevice_t device, long long time_us) {
    long long even = gpu_number(device, "util", 50);
    return time_us / 1000000 % 2 ? gpu_number(device, "util2", even) : even;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, rates_t *rates) {
    BEGIN(device);
    rates->gpu = utilization(device, now_us());
    rates->memory = gpu_number(device, "mem_util", 30);
    return SUCCESS;
}

/* Samples on a grid of a sixth of a second of real time; a first call without room asks for the buffer's size. */
nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, int type, unsigned long long seen_us, int *value_type,
                                  unsigned int *count, sample_t *samples) {
    BEGIN(device);
    unsigned int room = samples ? *count : 0, filled = 0;
    *value_type = 1; /* unsigned int */
    *count = 120;
    if (!samples)
        return SUCCESS;
    long long last = now_us() / GRID_US, first = seen_us / GRID_US + 1;
    if (first < last - 119)
        first = last - 119;
    if (first > last)
        *count = 0;
    else if (room)
        samples[filled++] = (sample_t){seen_us, {.uiVal = 99}}; /* a slot that is not newer than asked for */
    for (long long tick = first; tick <= last && filled < room; tick++, filled++) {
        samples[filled].timeStamp = tick * GRID_US;
        samples[filled].sampleValue.uiVal =
            type == 1 ? utilization(device, tick * GRID_US) : gpu_number(device, "mem_util", 30);
    }
    *count = filled;
    return filled ? SUCCESS : NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, process_t *processes) {
    BEGIN(device);
    char key[TEXT];
    snprintf(key, sizeof key, "%d.pids", device->index);
    const char *text = script(key);
    unsigned int room = processes ? *count : 0, found = 0;
    while (text && *text) {
        unsigned int pid = strtoul(text, (char **)&text, 10);
        if (found < room)
            processes[found] = (process_t){pid, 1 << 30, 0xffffffff, 0xffffffff};
        found++;
        text += *text == ',';
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, process_sample_t *samples, unsigned int *count,
                                             unsigned long long seen_us) {
    BEGIN(device);
    char key[TEXT];
    snprintf(key, sizeof key, "%d.pids", device->index);
    unsigned int busy = gpu_number(device, "process_util", 40);
    const char *text = script(key);
    unsigned int room = samples ? *count : 0, found = 0;
    long long tick_us = now_us() / GRID_US * GRID_US;
    while (text && *text && tick_us > (long long)seen_us) {
        unsigned int pid = strtoul(text, (char **)&text, 10);
        if (found < room)
            samples[found] = (process_sample_t){pid, tick_us, busy, 12, 0, 0};
        found++;
        text += *text == ',';
    }
    *count = found;
    return !found ? NOT_FOUND : found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

static void fill_field(nvmlDevice_t device, field_t *field) {
    char key[TEXT];
    long long time_us = now_us();
    snprintf(key, sizeof key, "fail.field.%u", field->fieldId);
    field->nvmlReturn = gpu_number(device, key, number(key, SUCCESS));
    field->timestamp = number("no_stamps", 0) ? 0 : time_us;
    field->valueType = 3; /* unsigned long long */
    switch (field->fieldId) {
    case 186: /* NVML_FI_DEV_POWER_INSTANT */
        field->valueType = 1;
        field->value.uiVal = gpu_number(device, "power_mw", 350000);
        break;
    case 197: /* NVML_FI_DEV_PCIE_COUNT_TX_BYTES */
    case 198: /* ..._RX_BYTES: half of it */
        field->value.ullVal = time_us * (gpu_number(device, "pcie_bps", 1000000000) / 1000000) / (field->fieldId - 196);
        if (!number("pcie_wide", 0)) {
            field->valueType = 1;
            field->value.ullVal &= 0xffffffff;
        }
        break;
    case 138: /* NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, KiB; of all links only */
    case 139:
        if (field->scopeId != 0xffffffff)
            field->nvmlReturn = INVALID_ARGUMENT;
        field->value.ullVal = time_us * (gpu_number(device, "nvlink_bps", 2048000000) / 1000000) / 1024 / (field->fieldId - 137);
        break;
    default:
        field->nvmlReturn = NOT_SUPPORTED;
    }
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, field_t *fields) {
    BEGIN(device);
    for (int at = 0; at < count; at++)
        fill_field(device, &fields[at]);
    return SUCCESS;
}

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, gpm_support_t *support) {
    BEGIN(device);
    if (support->version != 1)
        return INVALID_ARGUMENT;
    support->isSupportedDevice = gpu_number(device, "gpm_supported", 1);
    return SUCCESS;
}

nvmlReturn_t nvmlGpmSampleAlloc(gpm_sample_t **sample) {
    BEGIN(NULL);
    *sample = calloc(1, sizeof **sample);
    return SUCCESS;
}

nvmlReturn_t nvmlGpmSampleFree(gpm_sample_t *sample) {
    free(sample);
    return SUCCESS;
}

nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, gpm_sample_t *sample) {
    BEGIN(device);
    sample->monotonic_us = now_us();
    return SUCCESS;
}

/* The metric's number plus 40; rates are 100 MiB/s each. The samples must come older first. */
nvmlReturn_t nvmlGpmMetricsGet(gpm_get_t *request) {
    BEGIN(NULL);
    if (request->version != 1 || request->sample1->monotonic_us >= request->sample2->monotonic_us)
        return INVALID_ARGUMENT;
    for (unsigned int at = 0; at < request->numMetrics; at++) {
        char key[TEXT];
        gpm_metric_t *metric = &request->metrics[at];
        snprintf(key, sizeof key, "fail.gpm.%u", metric->metricId);
        metric->nvmlReturn = number(key, SUCCESS);
        metric->value = metric->metricId < 20 ? metric->metricId + 40 : 100;
    }
    return SUCCESS;
}
