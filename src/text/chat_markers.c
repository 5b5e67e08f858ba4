#include "text/chat_markers.h"

k3_status k3_chat_markers_find(k3_chat_markers *markers, const k3_vocab *vocab, k3_error *err)
{
    const struct {
        int32_t *id;
        const char *name;
    } wanted[] = {
        {&markers->open, "<|open|>"}, {&markers->close, "<|close|>"}, {&markers->sep, "<|sep|>"}, {&markers->end, "<|end_of_msg|>"}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        *wanted[i].id = k3_vocab_special(vocab, wanted[i].name);
        if (*wanted[i].id < 0)
            return k3_fail(err, K3_E_UNSUPPORTED,
                           "the vocabulary has no token %s, so it cannot chat in K3's format; is tokenizer_config.json another model's?",
                           wanted[i].name);
    }
    markers->eos = k3_vocab_special(vocab, "[EOS]");
    return K3_OK;
}
