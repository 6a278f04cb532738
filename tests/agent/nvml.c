/* A libnvidia-ml of two GPUs for machines that have none, with NVIDIA's interface: the bindings are the real ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15 };
typedef struct { unsigned int gpu, memory; } utilization;
typedef struct { unsigned long long total, free, used; } memory;
typedef struct gpu *device;

static int number(device gpu) { return (int)(long)gpu; }
static int is_lost(device gpu) { return number(gpu) == 2 && getenv("NVML_LOST") != NULL; }

int nvmlInitWithFlags(unsigned int flags) { (void)flags; return getenv("NVML_NO_DRIVER") ? DRIVER_NOT_LOADED : SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 2; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, device *gpu) { *gpu = (device)(long)(index + 1); return SUCCESS; }
int nvmlDeviceGetUUID(device gpu, char *uuid, unsigned int length) { snprintf(uuid, length, "GPU-%d", number(gpu)); return SUCCESS; }

int nvmlDeviceGetUtilizationRates(device gpu, utilization *rates) {
    rates->gpu = 40 * number(gpu);
    rates->memory = 5;
    return is_lost(gpu) ? GPU_IS_LOST : SUCCESS;
}

int nvmlDeviceGetMemoryInfo(device gpu, memory *info) {
    info->total = 80ull << 30;
    info->used = (unsigned long long)number(gpu) << 30;
    info->free = info->total - info->used;
    return is_lost(gpu) ? GPU_IS_LOST : SUCCESS;
}

int nvmlDeviceGetPowerUsage(device gpu, unsigned int *milliwatts) {
    *milliwatts = 70500 * number(gpu);
    return is_lost(gpu) ? GPU_IS_LOST : SUCCESS;
}

int nvmlDeviceGetTemperature(device gpu, int sensor, unsigned int *celsius) {
    *celsius = sensor == 0 ? 30 + number(gpu) : 0;
    return is_lost(gpu) ? GPU_IS_LOST : SUCCESS;
}

int nvmlDeviceGetClockInfo(device gpu, int clock, unsigned int *megahertz) {
    *megahertz = clock == 1 ? 1400 + number(gpu) : 0;
    return is_lost(gpu) ? GPU_IS_LOST : SUCCESS;
}

int nvmlDeviceGetTotalEnergyConsumption(device gpu, unsigned long long *millijoules) {
    FILE *asked = fopen(getenv("NVML_ASKED"), "a");
    if (asked) { fprintf(asked, "%d\n", number(gpu)); fclose(asked); }
    *millijoules = 123456;
    return number(gpu) == 2 ? NOT_SUPPORTED : SUCCESS;
}

const char *nvmlErrorString(int result) { return result == GPU_IS_LOST ? "GPU is lost" : "no driver"; }
