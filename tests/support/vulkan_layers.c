#include "support/vulkan_layers.h"

#include "base/os.h"
#include "faults/faults.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define STANDARD_LAYERS "/usr/share/vulkan/explicit_layer.d:/usr/local/share/vulkan/explicit_layer.d:/etc/vulkan/explicit_layer.d"

static char folder[64], log_path[96];

static int is_installed(const char *manifest)
{
    static const char *const folders[] = {"/usr/share/vulkan/explicit_layer.d", "/usr/local/share/vulkan/explicit_layer.d",
                                          "/etc/vulkan/explicit_layer.d", K3_FAULTS_FOLDER};
    char path[4096];
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", folders[i], manifest);
        if (*folders[i] && access(path, R_OK) == 0)
            return 1;
    }
    return 0;
}

static void remove_folder(void)
{
    char path[96];
    snprintf(path, sizeof path, "%s/vk_layer_settings.txt", folder);
    unlink(path);
    unlink(log_path);
    rmdir(folder);
}

/* The settings file says where messages go and what is looked for. */
static void write_settings(void)
{
    char path[96];
    if (*folder)
        return;
    strcpy(folder, "/tmp/k3-vulkan-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/vk_layer_settings.txt", folder);
    snprintf(log_path, sizeof log_path, "%s/messages", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f,
            "khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG\n"
            "khronos_validation.report_flags = error,warn\n"
            "khronos_validation.log_filename = %s\n"
            "khronos_validation.enables = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT\n",
            log_path);
    fclose(f);
    setenv("VK_LAYER_SETTINGS_PATH", path, 1);
    atexit(remove_folder);
}

int vulkan_use_layers(int layers)
{
    if (!is_installed("VkLayer_khronos_validation.json"))
        layers &= ~VULKAN_VALIDATION;
    if (!is_installed("VkLayer_K3_faults.json"))
        layers &= ~VULKAN_FAULTS;
    if (layers & VULKAN_VALIDATION)
        write_settings();
    /* The first one is next to the program: validation sees what reaches the device. */
    setenv("VK_INSTANCE_LAYERS",
           layers == (VULKAN_VALIDATION | VULKAN_FAULTS) ? "VK_LAYER_K3_faults:VK_LAYER_KHRONOS_validation"
           : layers == VULKAN_VALIDATION                 ? "VK_LAYER_KHRONOS_validation"
           : layers == VULKAN_FAULTS                     ? "VK_LAYER_K3_faults"
                                                         : "",
           1);
    setenv("NODEVICE_SELECT", "1", 1); /* Mesa's own layer does not survive a machine without devices */
    setenv("VK_LAYER_PATH", K3_FAULTS_FOLDER ":" STANDARD_LAYERS, 1);
    return layers;
}

int vulkan_messages(int expected)
{
    char *text = NULL;
    size_t n_bytes = 0;
    int n = 0;
    k3_error err;
    if (!*log_path || access(log_path, R_OK) != 0)
        return 0;
    if (k3_os_read_file(&text, &n_bytes, log_path, 1 << 20, &err) != K3_OK)
        fail_msg("%s", err.text);
    unlink(log_path);
    for (const char *at = text; (at = strstr(at, "MessageID")); at++)
        n++;
    if (n_bytes && !expected)
        fail_msg("validation says:\n%s", text);
    free(text);
    return n;
}

static void *fault_function(const char *name)
{
    static void *library;
    if (!library)
        library = dlopen(K3_FAULTS_FOLDER "/libVkLayer_K3_faults.so", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fail_msg("%s", dlerror());
    void *function = dlsym(library, name);
    assert_non_null(function);
    return function;
}

void vulkan_faults(const char *text)
{
    k3_faults_configure_fn *configure;
    *(void **)&configure = fault_function("k3_faults_configure");
    configure(text);
}

uint64_t vulkan_count(const char *counter)
{
    k3_faults_count_fn *count;
    *(void **)&count = fault_function("k3_faults_count");
    uint64_t n = count(counter);
    if (n == UINT64_MAX)
        fail_msg("the fault layer has no counter %s", counter);
    return n;
}

const char *vulkan_hider(void)
{
    static const char path[] = K3_FAULTS_FOLDER "/libK3_no_vulkan.so";
    return access(path, R_OK) == 0 ? path : NULL;
}
