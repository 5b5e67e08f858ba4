#include "ckpt/packed.h"

#include <stdio.h>
#include <string.h>

/* A string member that fits; "" if there is none. */
static const char *text_of(const k3_json *metadata, const char *key, size_t size)
{
    const k3_json *value = k3_json_get(metadata, key);
    return value && value->type == K3_JSON_STRING && value->text_bytes < size ? value->text : "";
}

k3_status k3_pack_read_tag(k3_pack_tag *out, const k3_json *metadata, const char *path, k3_error *err)
{
    static const char *const trunks[] = {"bf16", "int8", "int4"};
    *out = (k3_pack_tag){0};
    const k3_json *version = k3_json_get(metadata, K3_PACK_KEY_VERSION);
    if (!version)
        return K3_OK;
    if (!k3_json_text_is(version, K3_PACK_VERSION))
        return k3_fail(err, K3_E_UNSUPPORTED, "%s: packed in format \"%.20s\", this k3 reads format " K3_PACK_VERSION "; pack it again",
                       path, version->type == K3_JSON_STRING ? version->text : "?");
    snprintf(out->trunk, sizeof out->trunk, "%s", text_of(metadata, K3_PACK_KEY_TRUNK, sizeof out->trunk));
    snprintf(out->source, sizeof out->source, "%s", text_of(metadata, K3_PACK_KEY_SOURCE, sizeof out->source));
    for (size_t i = 0; i < sizeof trunks / sizeof *trunks; i++)
        out->is_packed |= strcmp(out->trunk, trunks[i]) == 0;
    if (!out->is_packed)
        return k3_fail(err, K3_E_FORMAT, "%s: is packed with a trunk \"%s\", wanted bf16, int8 or int4", path, out->trunk);
    const k3_json *codes = k3_json_get(metadata, K3_PACK_KEY_CODES);
    out->has_int4 = codes && k3_json_text_is(codes, K3_PACK_CODES);
    if (codes && !out->has_int4)
        return k3_fail(err, K3_E_UNSUPPORTED, "%s: is packed with codes \"%.20s\", wanted " K3_PACK_CODES, path,
                       codes->type == K3_JSON_STRING ? codes->text : "?");
    return K3_OK;
}

int k3_pack_is_padding(const char *name)
{
    return strncmp(name, K3_PACK_PADDING, sizeof K3_PACK_PADDING - 1) == 0;
}
