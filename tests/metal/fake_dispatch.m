#import "metal/fake_objects.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Of the dispatch that runs; there is one at a time. */
static pthread_t runner;
static sigjmp_buf back;
static volatile uint64_t fault_address;
static struct sigaction former[2];

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (pthread_equal(pthread_self(), runner)) {
        fault_address = (uintptr_t)info->si_addr;
        msl_abandon();
        siglongjmp(back, 1);
    }
    sigaction(number, &former[number == SIGBUS], NULL); /* somebody else's, who takes it when it comes again */
}

static void watch(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    runner = pthread_self();
    sigaction(SIGSEGV, &action, &former[0]);
    sigaction(SIGBUS, &action, &former[1]);
}

static void unwatch(void)
{
    sigaction(SIGSEGV, &former[0], NULL);
    sigaction(SIGBUS, &former[1], NULL);
}

/* Opens what the dispatch may touch, and of what the pass declares nothing else. */
static void declare(const fake_step *pass, const fake_dispatch *dispatch)
{
    for (int i = 0; i < pass->n_uses; i++)
        pass->uses[i].buffer->wanted = PROT_NONE;
    for (int i = 0; i < dispatch->n_uses; i++)
        pass->uses[i].buffer->wanted |= pass->uses[i].protection;
    for (int i = 0; i < MSL_MAX_BUFFERS; i++)
        if (dispatch->bindings[i].buffer)
            dispatch->bindings[i].buffer->wanted = PROT_READ | PROT_WRITE;
    for (int i = 0; i < pass->n_uses; i++)
        fake_memory_protect(&pass->uses[i].buffer->memory, pass->uses[i].buffer->wanted);
    for (int i = 0; i < MSL_MAX_BUFFERS; i++)
        if (dispatch->bindings[i].buffer)
            fake_memory_protect(&dispatch->bindings[i].buffer->memory, PROT_READ | PROT_WRITE);
}

static void close_bound(const fake_dispatch *dispatch)
{
    for (int i = 0; i < MSL_MAX_BUFFERS; i++)
        if (dispatch->bindings[i].buffer)
            fake_memory_protect(&dispatch->bindings[i].buffer->memory, PROT_NONE);
}

static void close_declared(const fake_step *pass)
{
    for (int i = 0; i < pass->n_uses; i++)
        fake_memory_protect(&pass->uses[i].buffer->memory, PROT_NONE);
}

/* msl_run, and what it touches that it may not. 0, or the error's code. */
static NSInteger run_watched(const fake_dispatch *dispatch, void *const *buffers, char *message, size_t message_size)
{
    const FakeFunction *function = dispatch->pipeline->function;
    msl_options options = {.width = fake_options.width, .seed = fake_options.thread_order, .cache = fake_options.cache};
    static char stack[65536];
    stack_t ours = {.ss_sp = stack, .ss_size = sizeof stack}, theirs;
    char text[256];
    volatile NSInteger code = 0;
    sigaltstack(&ours, &theirs);
    watch();
    if (sigsetjmp(back, 1)) {
        fake_memory_blame(fault_address, text, sizeof text);
        snprintf(message, message_size, "%s touches %s", function->name.UTF8String, text);
        code = MTLCommandBufferErrorPageFault;
    } else if (msl_run(function->kernel, buffers, dispatch->groups, dispatch->threads, &options, text, sizeof text) != 0) {
        snprintf(message, message_size, "%s: %s", function->name.UTF8String, text);
        code = MTLCommandBufferErrorInternal;
    }
    unwatch();
    sigaltstack(&theirs, NULL);
    return code;
}

static NSInteger run_dispatch(const fake_step *pass, const fake_dispatch *dispatch, char *message, size_t message_size)
{
    void *buffers[MSL_MAX_BUFFERS] = {0};
    for (int i = 0; i < MSL_MAX_BUFFERS; i++) {
        const fake_binding *binding = &dispatch->bindings[i];
        if (binding->buffer)
            buffers[i] = binding->buffer->memory.device + binding->offset;
        else if (binding->bytes)
            buffers[i] = fake_memory_argument(i, binding->bytes, binding->length);
    }
    declare(pass, dispatch);
    if (fake_options.hide_host)
        fake_memory_hide(true);
    NSInteger code = run_watched(dispatch, buffers, message, message_size);
    if (fake_options.hide_host)
        fake_memory_hide(false);
    close_bound(dispatch);
    if (code)
        fake_violation("%s", message);
    return code;
}

static void swap(const fake_dispatch **batch, int i, int j)
{
    const fake_dispatch *other = batch[i];
    batch[i] = batch[j];
    batch[j] = other;
}

/* Puts the dispatches of one batch in an order that a device could choose. */
static void reorder(const fake_dispatch **batch, int n)
{
    static uint64_t n_shuffled;
    if (fake_options.dispatch_order == 1)
        for (int i = 0; i < n / 2; i++)
            swap(batch, i, n - 1 - i);
    if (fake_options.dispatch_order < 2)
        return;
    uint64_t state = fake_options.dispatch_order + ++n_shuffled;
    for (int i = n - 1; i > 0; i--) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        swap(batch, i, (int)((state >> 33) % (unsigned)(i + 1)));
    }
}

bool fake_run_pass(const fake_step *pass, NSInteger *code, char *message, size_t message_size)
{
    const fake_dispatch **batch = malloc(((size_t)pass->n_dispatches + 1) * sizeof *batch);
    if (!batch)
        abort();
    *code = 0;
    for (int first = 0, n; first < pass->n_dispatches && !*code; first += n) {
        for (n = 0; first + n < pass->n_dispatches && pass->dispatches[first + n].batch == pass->dispatches[first].batch; n++)
            batch[n] = &pass->dispatches[first + n];
        reorder(batch, n);
        for (int i = 0; i < n && !*code; i++)
            *code = run_dispatch(pass, batch[i], message, message_size);
    }
    close_declared(pass);
    free(batch);
    return !*code;
}
