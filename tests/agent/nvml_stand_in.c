/*
 * A stand-in of libnvidia-ml with two GPUs, for machines that have none. It has NVIDIA's interface: the bindings are the real ones.
 *
 * The file that NVML_MIG names has the numbers of the MIG devices of GPU 2, which is in MIG mode then, as NVIDIA's reference of NVML has
 * it: of 7 numbers some are free (NOT_FOUND), the GPU's utilisation is not supported, its memory needs a permission, and a MIG device
 * has memory alone. GPU 1 is of a model without that mode.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15 };
enum { MIG = 100, MOST_MIG_DEVICES = 7 };
typedef struct { unsigned int gpu, memory; } utilization;
typedef struct { unsigned long long total, free, used; } memory;
typedef struct gpu *device;

static int number(device gpu) { return (int)(long)gpu; }
static int is_lost(device gpu) { return number(gpu) == 2 && getenv("NVML_LOST") != NULL; }

static int is_mig_device(device gpu) { return number(gpu) >= MIG; }

static int has_mig_device(int wanted) {
    FILE *file = fopen(getenv("NVML_MIG"), "r");
    int found, has = 0;
    while (file && fscanf(file, "%d", &found) == 1) has |= found == wanted;
    if (file) fclose(file);
    return has;
}

static int is_in_mig_mode(device gpu) { return number(gpu) == 2 && getenv("NVML_MIG") != NULL; }

int nvmlDeviceGetMigMode(device gpu, unsigned int *current, unsigned int *pending) {
    *current = *pending = is_in_mig_mode(gpu);
    return number(gpu) == 1 ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(device gpu, unsigned int *count) {
    *count = is_in_mig_mode(gpu) ? MOST_MIG_DEVICES : 0;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(device gpu, unsigned int index, device *part) {
    if (getenv("NVML_FORBIDDEN")) return NO_PERMISSION;
    if (!is_in_mig_mode(gpu) || !has_mig_device(index)) return NOT_FOUND;
    *part = (device)(long)(MIG + index);
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned int flags) { (void)flags; return getenv("NVML_NO_DRIVER") ? DRIVER_NOT_LOADED : SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 2; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, device *gpu) { *gpu = (device)(long)(index + 1); return SUCCESS; }

int nvmlDeviceGetUUID(device gpu, char *uuid, unsigned int length) {
    snprintf(uuid, length, is_mig_device(gpu) ? "MIG-%d" : "GPU-%d", number(gpu) % MIG);
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(device gpu, utilization *rates) {
    if (is_mig_device(gpu) || is_in_mig_mode(gpu)) return NOT_SUPPORTED;
    rates->gpu = 40 * number(gpu);
    rates->memory = 5;
    return is_lost(gpu) ? GPU_IS_LOST : SUCCESS;
}

int nvmlDeviceGetMemoryInfo(device gpu, memory *info) {
    if (is_in_mig_mode(gpu)) return NO_PERMISSION;
    if (is_mig_device(gpu) && !has_mig_device(number(gpu) % MIG)) return INVALID_ARGUMENT;
    info->total = (is_mig_device(gpu) ? 20ull : 80ull) << 30;
    info->used = (unsigned long long)(number(gpu) % MIG) << 30;
    info->free = info->total - info->used;
    return is_lost(gpu) ? GPU_IS_LOST : SUCCESS;
}

int nvmlDeviceGetPowerUsage(device gpu, unsigned int *milliwatts) {
    if (is_mig_device(gpu)) return NOT_SUPPORTED;
    *milliwatts = 70500 * number(gpu);
    return is_lost(gpu) ? GPU_IS_LOST : SUCCESS;
}

int nvmlDeviceGetTemperature(device gpu, int sensor, unsigned int *celsius) {
    if (is_mig_device(gpu)) return NOT_SUPPORTED;
    *celsius = sensor == 0 ? 30 + number(gpu) : 0;
    return is_lost(gpu) ? GPU_IS_LOST : SUCCESS;
}

int nvmlDeviceGetClockInfo(device gpu, int clock, unsigned int *megahertz) {
    if (is_mig_device(gpu)) return NOT_SUPPORTED;
    *megahertz = clock == 1 ? 1400 + number(gpu) : 0;
    return is_lost(gpu) ? GPU_IS_LOST : SUCCESS;
}

int nvmlDeviceGetTotalEnergyConsumption(device gpu, unsigned long long *millijoules) {
    FILE *asked = fopen(getenv("NVML_ASKED"), "a");
    if (asked) { fprintf(asked, "%d\n", number(gpu)); fclose(asked); }
    *millijoules = 123456;
    return number(gpu) == 2 ? NOT_SUPPORTED : SUCCESS;
}

const char *nvmlErrorString(int result) { return result == GPU_IS_LOST ? "GPU is lost" : "another error"; }
