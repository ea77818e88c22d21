#include "dwarf_expression.h"

enum { DEPTH = 16, MAX_OPERATIONS = 256 };

/* DWARF 5, section 7.7.1 */
enum {
    OP_ADDR = 0x03,
    OP_DEREF = 0x06,
    OP_CONST1U = 0x08,
    OP_CONST1S,
    OP_CONST2U,
    OP_CONST2S,
    OP_CONST4U,
    OP_CONST4S,
    OP_CONST8U,
    OP_CONST8S,
    OP_CONSTU,
    OP_CONSTS,
    OP_DUP,
    OP_DROP,
    OP_OVER,
    OP_SWAP = 0x16,
    OP_AND = 0x1a,
    OP_MINUS = 0x1c,
    OP_OR = 0x21,
    OP_PLUS,
    OP_PLUS_UCONST,
    OP_SHL,
    OP_SHR,
    OP_XOR = 0x27,
    OP_EQ = 0x29,
    OP_GE,
    OP_GT,
    OP_LE,
    OP_LT,
    OP_NE,
    OP_LIT0 = 0x30,
    OP_LIT31 = 0x4f,
    OP_BREG0 = 0x70,
    OP_BREG31 = 0x8f,
    OP_BREGX = 0x92,
    OP_NOP = 0x96,
};

static bool two_operands(unsigned operation, uintptr_t a, uintptr_t b, uintptr_t *result)
{
    intptr_t left = (intptr_t)a, right = (intptr_t)b;
    switch (operation) {
    case OP_AND:
        *result = a & b;
        return true;
    case OP_MINUS:
        *result = a - b;
        return true;
    case OP_OR:
        *result = a | b;
        return true;
    case OP_PLUS:
        *result = a + b;
        return true;
    case OP_SHL:
        *result = b < 64 ? a << b : 0;
        return true;
    case OP_SHR:
        *result = b < 64 ? a >> b : 0;
        return true;
    case OP_XOR:
        *result = a ^ b;
        return true;
    case OP_EQ:
        *result = a == b;
        return true;
    case OP_GE:
        *result = left >= right;
        return true;
    case OP_GT:
        *result = left > right;
        return true;
    case OP_LE:
        *result = left <= right;
        return true;
    case OP_LT:
        *result = left < right;
        return true;
    case OP_NE:
        *result = a != b;
        return true;
    default:
        return false;
    }
}

static bool constant(struct rk_reader *reader, unsigned operation, uintptr_t *value)
{
    if (operation >= OP_LIT0 && operation <= OP_LIT31)
        *value = operation - OP_LIT0;
    else if (operation == OP_ADDR)
        *value = (uintptr_t)rk_read_number(reader, 8);
    else if (operation == OP_CONSTU)
        *value = (uintptr_t)rk_read_uleb(reader);
    else if (operation == OP_CONSTS)
        *value = (uintptr_t)rk_read_sleb(reader);
    else if (operation >= OP_CONST1U && operation <= OP_CONST8S) {
        size_t size = (size_t)1 << (operation - OP_CONST1U) / 2;
        *value = (operation - OP_CONST1U) % 2 == 0 ? (uintptr_t)rk_read_number(reader, size)
                                                   : (uintptr_t)rk_read_signed(reader, size);
    } else {
        return false;
    }
    return true;
}

static bool from_register(struct rk_reader *reader, const uintptr_t *registers, uint64_t count,
                          unsigned operation, uintptr_t *value)
{
    uint64_t number = operation - OP_BREG0;
    if (operation == OP_BREGX)
        number = rk_read_uleb(reader);
    else if (operation < OP_BREG0 || operation > OP_BREG31)
        return false;
    int64_t offset = rk_read_sleb(reader);
    if (number >= count)
        return false;
    *value = registers[number] + (uintptr_t)offset;
    return true;
}

bool rk_evaluate(struct rk_reader *reader, const uintptr_t *registers, uint64_t count,
                 const uintptr_t *initial, uintptr_t *result)
{
    uintptr_t stack[DEPTH];
    int depth = 0;
    if (initial != NULL)
        stack[depth++] = *initial;
    for (int i = 0; i < MAX_OPERATIONS && reader->at < reader->end && !reader->bad; i++) {
        unsigned operation = (unsigned)rk_read_number(reader, 1);
        uintptr_t value = 0;
        if (depth == DEPTH)
            return false;
        if (constant(reader, operation, &value) ||
            from_register(reader, registers, count, operation, &value))
            stack[depth++] = value;
        else if (operation == OP_NOP)
            continue;
        else if (depth == 0)
            return false;
        else if (operation == OP_DUP)
            stack[depth] = stack[depth - 1], depth++;
        else if (operation == OP_DROP)
            depth--;
        else if (operation == OP_PLUS_UCONST)
            stack[depth - 1] += (uintptr_t)rk_read_uleb(reader);
        else if (operation == OP_DEREF) {
            if (!rk_checked_read(reader->memory, stack[depth - 1], &stack[depth - 1], sizeof value))
                return false;
        } else if (depth == 1)
            return false;
        else if (operation == OP_OVER)
            stack[depth] = stack[depth - 2], depth++;
        else if (operation == OP_SWAP) {
            value = stack[depth - 1];
            stack[depth - 1] = stack[depth - 2];
            stack[depth - 2] = value;
        } else if (two_operands(operation, stack[depth - 2], stack[depth - 1], &value))
            stack[--depth - 1] = value;
        else
            return false;
    }
    if (reader->bad || reader->at != reader->end || depth == 0)
        return false;
    *result = stack[depth - 1];
    return true;
}
