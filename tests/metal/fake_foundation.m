#import "metal/fake_foundation.h"

#include "metal/fake_state.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* From the runtime; its headers come with another compiler. */
extern id class_createInstance(Class class, size_t extra);
extern size_t class_getInstanceSize(Class class);
extern const char *class_getName(Class class);
extern Class objc_lookUpClass(const char *name);
extern id object_dispose(id object);
extern const char *sel_getName(SEL selector);

#if __has_feature(address_sanitizer)
#include <sanitizer/lsan_interface.h>

/* The runtime's own tables stay; objects come from elsewhere. */
const char *__lsan_default_suppressions(void)
{
    return "leak:objc_malloc\n";
}
#endif

/* Sits behind the fields of each object: constant strings are laid out by the compiler and leave no room in front. */
typedef struct head {
    struct head *next, *previous;
    Class class;
    long count;
} head;

enum { ZOMBIES = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static head live = {.next = &live, .previous = &live};
static id zombies[ZOMBIES];
static unsigned n_zombies;

static Class *class_of(id object)
{
    return (Class *)(void *)object;
}

static head *head_of(id object)
{
    return (head *)((char *)object + ((class_getInstanceSize(*class_of(object)) + 15) & ~(size_t)15));
}

int k3_fake_metal_live(const char *class_name)
{
    int n = 0;
    pthread_mutex_lock(&lock);
    for (const head *h = live.next; h != &live; h = h->next)
        n += !class_name || !strcmp(class_getName(h->class), class_name);
    pthread_mutex_unlock(&lock);
    return n;
}

/* What an object becomes when its count is 0: its memory stays, so that late messages are seen. */
__attribute__((objc_root_class))
@interface FakeZombie {
    Class isa;
    Class former;
}
@end

@implementation FakeZombie
- (id)retain
{
    fake_violation("a %s is retained that was released", class_getName(former));
    return self;
}

- (void)release
{
    fake_violation("a %s is released more often than retained", class_getName(former));
}

- (id)autorelease
{
    fake_violation("a %s is autoreleased more often than retained", class_getName(former));
    return self;
}

/* What the runtime calls for a message that a class does not know. */
// clang-format off
- (id)forward:(SEL)selector :(void *)arguments
// clang-format on
{
    (void)arguments;
    fake_violation("%s is sent to a %s that was released", sel_getName(selector), class_getName(former));
    return nil;
}
@end

BOOL fake_lives(id object, const char *what)
{
    BOOL lives = *class_of(object) != objc_lookUpClass("FakeZombie");
    if (!lives)
        fake_violation("%s of a %s that was released", what, class_getName(class_of(object)[1]));
    return lives;
}

static void bury(id object)
{
    Class class = *class_of(object);
    pthread_mutex_lock(&lock);
    head *h = head_of(object);
    h->next->previous = h->previous;
    h->previous->next = h->next;
    *class_of(object) = objc_lookUpClass("FakeZombie");
    class_of(object)[1] = class;
    id oldest = zombies[n_zombies % ZOMBIES];
    zombies[n_zombies++ % ZOMBIES] = object;
    pthread_mutex_unlock(&lock);
    if (oldest)
        object_dispose(oldest);
}

/* Of this thread: the open pools, each under the objects that it will release. */
static _Thread_local struct {
    id *items;
    size_t n, room;
} pools;

static void push(id object)
{
    if (pools.n == pools.room) {
        pools.room = pools.room ? 2 * pools.room : 64;
        pools.items = realloc(pools.items, pools.room * sizeof *pools.items);
        if (!pools.items)
            abort();
    }
    pools.items[pools.n++] = object;
}

@implementation NSObject
+ (instancetype)alloc
{
    id object = class_createInstance(self, sizeof(head) + 15 + 2 * sizeof(Class));
    if (!object)
        abort();
    head *h = head_of(object);
    pthread_mutex_lock(&lock);
    *h = (head){.next = live.next, .previous = &live, .class = self, .count = 1};
    live.next->previous = h;
    live.next = h;
    pthread_mutex_unlock(&lock);
    return object;
}

+ (instancetype)new
{
    return [[self alloc] init];
}

- (instancetype)init
{
    return self;
}

- (void)dealloc
{
    bury(self);
}

- (instancetype)retain
{
    __atomic_add_fetch(&head_of(self)->count, 1, __ATOMIC_RELAXED);
    return self;
}

- (oneway void)release
{
    if (__atomic_sub_fetch(&head_of(self)->count, 1, __ATOMIC_ACQ_REL) == 0)
        [self dealloc];
}

- (NSUInteger)retainCount
{
    return (NSUInteger)__atomic_load_n(&head_of(self)->count, __ATOMIC_RELAXED);
}

- (instancetype)autorelease
{
    if (pools.n)
        push(self);
    else
        fake_violation("a %s is autoreleased outside of any pool", class_getName(*class_of(self)));
    return self;
}
@end

@implementation NSAutoreleasePool
- (instancetype)init
{
    push(self);
    return self;
}

- (void)drain
{
    size_t mine = pools.n;
    while (mine && pools.items[mine - 1] != self)
        mine--;
    if (!mine) {
        fake_violation("a pool is drained on another thread or after one that it was opened in");
        return;
    }
    while (pools.n > mine)
        [pools.items[--pools.n] release];
    pools.n--;
    if (!pools.n) {
        free(pools.items);
        pools.items = NULL;
        pools.room = 0;
    }
    [self release];
}
@end

@interface FakeString : NSString {
    char *text;
}
+ (instancetype)newWithText:(const char *)text;
@end

/* Laid out by the compiler for @"...". */
@interface NSConstantString : NSString {
    char *text;
    unsigned length;
}
@end

@implementation NSString
+ (instancetype)stringWithUTF8String:(const char *)text
{
    return [[FakeString newWithText:text] autorelease];
}

- (const char *)UTF8String
{
    return NULL;
}
@end

@implementation FakeString
+ (instancetype)newWithText:(const char *)text
{
    FakeString *string = [FakeString new];
    string->text = strdup(text);
    return string;
}

- (const char *)UTF8String
{
    return text;
}

- (void)dealloc
{
    free(text);
    [super dealloc];
}
@end

@implementation NSConstantString
- (const char *)UTF8String
{
    return text;
}

- (instancetype)retain
{
    return self;
}

- (oneway void)release
{
}

- (instancetype)autorelease
{
    return self;
}

- (NSUInteger)retainCount
{
    return ~0ul;
}
@end

@implementation NSArray
+ (instancetype)newWithObjects:(id const *)objects count:(NSUInteger)count
{
    NSArray *array = [self new];
    array->_items = calloc(count ? count : 1, sizeof *array->_items);
    array->_count = count;
    for (NSUInteger i = 0; i < count; i++)
        array->_items[i] = [objects[i] retain];
    return array;
}

- (NSUInteger)count
{
    return _count;
}

- (id)objectAtIndex:(NSUInteger)index
{
    if (index < _count)
        return _items[index];
    fake_violation("object %lu of an array of %lu", index, _count);
    return nil;
}

- (void)dealloc
{
    for (NSUInteger i = 0; i < _count; i++)
        [_items[i] release];
    free(_items);
    [super dealloc];
}
@end

@implementation NSError
+ (instancetype)errorWithCode:(NSInteger)code text:(const char *)text
{
    NSError *error = [self new];
    error->_code = code;
    error->_text = [FakeString newWithText:text];
    return [error autorelease];
}

- (NSInteger)code
{
    return _code;
}

- (NSString *)localizedDescription
{
    return _text;
}

- (void)dealloc
{
    [_text release];
    [super dealloc];
}
@end
