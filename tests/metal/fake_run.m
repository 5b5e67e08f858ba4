#import "metal/fake_objects.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Committed and not completed, in the order of the commits; what the whole file keeps is under the lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static FakeCommandBuffer *pending;
static BOOL running; /* some thread runs steps, without the lock */

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Waits for a change, until `deadline` of the monotonic clock at most. */
static void wait_until(double deadline)
{
    double left = deadline - seconds();
    struct timespec when;
    clock_gettime(CLOCK_REALTIME, &when);
    left = left < 0 ? 0 : left > 1 ? 1 : left;
    when.tv_nsec += (long)(left * 1e9);
    when.tv_sec += when.tv_nsec / 1000000000;
    when.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&changed, &lock, &when);
}

static BOOL done(const FakeCommandBuffer *commands)
{
    return commands->status >= MTLCommandBufferStatusCompleted;
}

static BOOL blocked(const FakeCommandBuffer *commands)
{
    const fake_step *step = commands->at < commands->n_steps ? commands->steps[commands->at] : NULL;
    return step && step->kind == FAKE_STEP_WAIT && step->event->value < step->value;
}

/* The oldest command buffer of a queue. */
static FakeCommandBuffer *head_of(const FakeQueue *queue)
{
    FakeCommandBuffer *head = pending;
    while (head && head->queue != queue)
        head = head->next;
    return head;
}

/* What can go on: of the queue where it can, else of another one. */
static FakeCommandBuffer *runnable(const FakeQueue *queue)
{
    FakeCommandBuffer *head = queue ? head_of(queue) : NULL;
    if (head && !blocked(head))
        return head;
    for (FakeCommandBuffer *c = pending; c; c = c->next)
        if (head_of(c->queue) == c && !blocked(c))
            return c;
    return nil;
}

static void set_event(FakeEvent *event, uint64_t value)
{
    if (value < event->value)
        fake_violation("an event goes back from %llu to %llu", (unsigned long long)event->value, (unsigned long long)value);
    event->value = value;
    event->polls = 0;
    pthread_cond_broadcast(&changed);
}

/* Ends it, with an error where `code` is one, and gives back what it holds. */
static void finish(FakeCommandBuffer *commands, NSInteger code, const char *message)
{
    FakeCommandBuffer **link = &pending;
    while (*link != commands)
        link = &(*link)->next;
    *link = commands->next;
    commands->end = seconds();
    if (code)
        @autoreleasepool {
            commands->error = [[NSError errorWithCode:code text:message] retain];
        }
    for (int i = 0; i < commands->n_held; i++)
        [commands->held[i] land];
    commands->n_held = 0;
    commands->status = code ? MTLCommandBufferStatusError : MTLCommandBufferStatusCompleted;
    pthread_cond_broadcast(&changed);
    [commands release];
}

static void blit(const fake_step *step)
{
    char *to = step->to->memory.host + step->to_offset;
    if (step->kind == FAKE_STEP_FILL)
        memset(to, step->fill, step->size);
    else
        memmove(to, step->from->memory.host + step->from_offset, step->size);
}

/* Takes the steps down to the end or to an event that has not come. Where the last of them is a signal the command buffer ends a moment
 * later, the next time that something is to run. The lock is held on entry and on return. */
static void run(FakeCommandBuffer *commands)
{
    int fail_code = 0;
    NSInteger code = 0;
    char message[640] = "a run that is to fail";
    BOOL signaled = NO;
    if (commands->status == MTLCommandBufferStatusCommitted) {
        commands->status = MTLCommandBufferStatusScheduled;
        commands->start = seconds();
        code = fake_call(K3_FAKE_RUN, &fail_code) ? fail_code : 0;
    }
    if (fake_lost || code == MTLCommandBufferErrorDeviceRemoved) {
        fake_lost = true;
        code = MTLCommandBufferErrorDeviceRemoved;
    }
    while (!code && commands->at < commands->n_steps && !blocked(commands)) {
        const fake_step *step = commands->steps[commands->at];
        signaled = step->kind == FAKE_STEP_SIGNAL;
        if (signaled) {
            set_event(step->event, step->value);
        } else if (step->kind != FAKE_STEP_WAIT) {
            running = YES;
            pthread_mutex_unlock(&lock);
            if (step->kind == FAKE_STEP_PASS)
                fake_run_pass(step, &code, message, sizeof message);
            else
                blit(step);
            pthread_mutex_lock(&lock);
            running = NO;
            pthread_cond_broadcast(&changed);
        }
        commands->at++;
    }
    if (code || (commands->at == commands->n_steps && !signaled))
        finish(commands, code, message);
}

/* Runs what can run. */
static void run_all(void)
{
    while (!running) {
        FakeCommandBuffer *next = runnable(NULL);
        if (!next)
            return;
        run(next);
    }
}

void fake_commit(FakeCommandBuffer *commands)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < commands->n_held; i++)
        [commands->held[i] fly];
    FakeCommandBuffer **link = &pending;
    while (*link)
        link = &(*link)->next;
    *link = [commands retain];
    commands->status = MTLCommandBufferStatusCommitted;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* The event at which a queue stands does not come: its oldest command buffer fails. */
static void give_up(const FakeQueue *queue)
{
    FakeCommandBuffer *head = head_of(queue);
    const fake_step *step = head->steps[head->at];
    char message[128];
    snprintf(message, sizeof message, "an event is waited for that never comes: it is at %llu of %llu",
             (unsigned long long)step->event->value, (unsigned long long)step->value);
    fake_violation("%s", message);
    finish(head, MTLCommandBufferErrorTimeout, message);
}

void fake_wait(FakeCommandBuffer *commands)
{
    pthread_mutex_lock(&lock);
    double deadline = seconds() + 1e-3 * fake_options.event_timeout;
    while (!done(commands)) {
        FakeCommandBuffer *next = running ? NULL : runnable(commands->queue);
        if (next)
            run(next);
        else if (running || seconds() < deadline)
            wait_until(deadline);
        else
            give_up(commands->queue);
        if (next || running)
            deadline = seconds() + 1e-3 * fake_options.event_timeout;
    }
    pthread_mutex_unlock(&lock);
}

BOOL fake_is_done(FakeCommandBuffer *commands)
{
    pthread_mutex_lock(&lock);
    BOOL is = done(commands);
    pthread_mutex_unlock(&lock);
    return is;
}

MTLCommandBufferStatus fake_status(FakeCommandBuffer *commands)
{
    pthread_mutex_lock(&lock);
    if (!done(commands) && commands->polls++ >= fake_options.polls)
        run_all();
    MTLCommandBufferStatus status = commands->status;
    pthread_mutex_unlock(&lock);
    return status;
}

uint64_t fake_event_value(FakeEvent *event)
{
    pthread_mutex_lock(&lock);
    if (event->polls++ >= fake_options.polls)
        run_all();
    uint64_t value = event->value;
    pthread_mutex_unlock(&lock);
    return value;
}

void fake_event_set(FakeEvent *event, uint64_t value)
{
    pthread_mutex_lock(&lock);
    set_event(event, value);
    pthread_mutex_unlock(&lock);
}

BOOL fake_event_wait(FakeEvent *event, uint64_t value, uint64_t milliseconds)
{
    pthread_mutex_lock(&lock);
    double deadline = seconds() + 1e-3 * (double)milliseconds;
    while (event->value < value) {
        FakeCommandBuffer *next = running ? NULL : runnable(NULL);
        if (next)
            run(next);
        else if (seconds() < deadline)
            wait_until(deadline);
        else
            break;
    }
    BOOL reached = event->value >= value;
    pthread_mutex_unlock(&lock);
    return reached;
}
