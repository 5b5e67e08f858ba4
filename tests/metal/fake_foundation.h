/* Objects of the fake Foundation as the fake Metal makes them. */
#ifndef K3_TESTS_METAL_FAKE_FOUNDATION_H
#define K3_TESTS_METAL_FAKE_FOUNDATION_H

#import <Foundation/Foundation.h>

@interface NSArray (Fake)
/* An array, not autoreleased, of `count` objects, which it retains. */
+ (instancetype)newWithObjects:(id const *)objects count:(NSUInteger)count;
@end

@interface NSError (Fake)
/* Autoreleased. */
+ (instancetype)errorWithCode:(NSInteger)code text:(const char *)text;
@end

/* False, and a violation, for an object that was released: its fields are not to be looked at. */
BOOL fake_lives(id object, const char *what);

#endif
