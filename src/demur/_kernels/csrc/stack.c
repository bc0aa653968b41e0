/* Boxes that wait, each with its items and sums. */
#include "search.h"

#include <stdlib.h>
#include <string.h>

/* Pointers are copied as bytes: one to another type must not be written as if it were a `void *`. */
int make_room(void *pointer, size_t count, size_t size)
{
    void *array;
    memcpy(&array, pointer, sizeof array);
    if (count == 0) count = 1;
    array = count > SIZE_MAX / size ? NULL : realloc(array, count * size);
    if (!array) return -1;
    memcpy(pointer, &array, sizeof array);
    return 0;
}

int reserve_items(Items *items, int64_t count)
{
    if (count <= items->room) return 0;
    if (MAKE_ROOM(&items->item, 2 * (size_t)count)) return -1;
    items->room = 2 * count;
    return 0;
}

int stack_push(Stack *stack, const Box *box, const Items *items, const int64_t *sums, int row_size)
{
    if (stack->count == stack->room) {
        size_t room = 2 * (size_t)stack->room + 64;
        if (MAKE_ROOM(&stack->box, room) || MAKE_ROOM(&stack->sums, room * (size_t)row_size))
            return -1;
        stack->room = (int64_t)room;
    }
    Items *all = &stack->items;
    if (reserve_items(all, all->count + items->count)) return -1;
    Box *top = stack->box + stack->count;
    *top = *box;
    top->count = (int32_t)items->count;
    /* Boxes that nothing crosses may come before there is room for any item. */
    if (items->count > 0)
        memcpy(all->item + all->count, items->item, (size_t)items->count * sizeof *all->item);
    memcpy(stack->sums + stack->count * row_size, sums, (size_t)row_size * sizeof *sums);
    all->count += items->count;
    stack->count++;
    return 0;
}

int stack_pop(Stack *stack, Box *box, Items *items, int64_t *sums, int row_size)
{
    stack->count--;
    *box = stack->box[stack->count];
    memcpy(sums, stack->sums + stack->count * row_size, (size_t)row_size * sizeof *sums);
    if (reserve_items(items, box->count)) return -1;
    stack->items.count -= box->count;
    items->count = box->count;
    if (box->count > 0)
        memcpy(items->item, stack->items.item + stack->items.count,
               (size_t)box->count * sizeof *items->item);
    return 0;
}

void stack_clear(Stack *stack) { stack->count = stack->items.count = 0; }

void stack_free(Stack *stack)
{
    free(stack->box);
    free(stack->sums);
    free(stack->items.item);
}
