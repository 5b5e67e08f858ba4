/* The part of Apple's Foundation that the Metal backend uses, for machines without it: names, types and values are Apple's.
 * Fields of classes are the fake's own. */
#ifndef K3_FOUNDATION_H
#define K3_FOUNDATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef YES
typedef bool BOOL;
#define YES __objc_yes
#define NO __objc_no
#endif
#ifndef nil
#define nil ((void *)0)
#endif

typedef long NSInteger;
typedef unsigned long NSUInteger;
typedef double CFTimeInterval;

#define NS_ENUM(type, name)                                                                                                                \
    enum name : type name;                                                                                                                 \
    enum name : type
#define NS_OPTIONS(type, name) NS_ENUM(type, name)

typedef struct _NSRange {
    NSUInteger location, length;
} NSRange;

static inline NSRange NSMakeRange(NSUInteger location, NSUInteger length)
{
    return (NSRange){location, length};
}

#pragma clang assume_nonnull begin

@protocol NSObject
- (instancetype)retain;
- (oneway void)release;
- (instancetype)autorelease;
- (NSUInteger)retainCount;
@end

__attribute__((objc_root_class))
@interface NSObject<NSObject> {
    Class isa;
}
+ (instancetype)alloc;
+ (instancetype)new;
- (instancetype)init;
- (void)dealloc;
@end

@interface NSString : NSObject
+ (nullable instancetype)stringWithUTF8String:(const char *)text;
@property(readonly, nullable) const char *UTF8String;
@end

@interface NSArray<ObjectType> : NSObject {
    id *_items;
    NSUInteger _count;
}
@property(readonly) NSUInteger count;
- (ObjectType)objectAtIndex:(NSUInteger)index;
@end

@interface NSError : NSObject {
    NSInteger _code;
    NSString *_text;
}
@property(readonly) NSInteger code;
@property(readonly, copy) NSString *localizedDescription;
@end

@interface NSAutoreleasePool : NSObject
- (void)drain;
@end

#pragma clang assume_nonnull end

#endif
