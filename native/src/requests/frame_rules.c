#define _GNU_SOURCE
#include "frame_rules.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>

#include "dwarf_expression.h"
#include "dwarf_reader.h"
#include "loader/loaded.h"

enum { REMEMBERED = 4, MAX_INSTRUCTIONS = 4096, HEADER_TABLE = 0x3b, HEADER_COUNT = 0x03 };

enum rule_kind { SAME, UNDEFINED, AT_OFFSET, IS_OFFSET, IN_REGISTER, AT_EXPRESSION, IS_EXPRESSION };

struct rule {
    uint8_t kind;
    uint32_t length; /* of an expression */
    uintptr_t value; /* offset from the CFA, register, or address of an expression */
};

struct rules {
    struct rule of[RK_REGISTERS];
    uint64_t cfa_register;
    int64_t cfa_offset;
    uintptr_t cfa_expression; /* 0 = register and offset */
    uint64_t cfa_length;
    bool signed_return; /* AArch64 pointer authentication */
};

struct information {
    uintptr_t begin, end; /* of the function */
    uint64_t code_alignment;
    int64_t data_alignment;
    unsigned encoding;
    bool augmented, signal_frame;
    struct rk_reader common, own; /* the instructions */
};

/* As <dlfcn.h> has it since glibc 2.35: takes no lock, in contrast to dl_iterate_phdr, and is
 * documented as async-signal-safe. Looked up by name, so that one library serves older glibc too.
 * The linker's --wrap brings the calls of libgcc's unwinder, which is linked into this library, to
 * the function below. */
struct find_result {
    unsigned long long flags;
    void *low, *high;
    void *map;
    void *frames; /* .eh_frame_hdr */
    unsigned long long reserved[8];
};

typedef int (*find_function)(void *, struct find_result *);

static _Atomic(uintptr_t) find_object;

void rk_frames_prepare(void)
{
    atomic_store(&find_object, (uintptr_t)rk_dlsym(RTLD_DEFAULT, "_dl_find_object"));
}

struct place {
    uintptr_t pc;
    void *frames;
};

static int match_object(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    struct place *place = data;
    bool is_inside = false;
    void *frames = NULL;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t low = (uintptr_t)(info->dlpi_addr + part->p_vaddr);
        if (part->p_type == PT_LOAD)
            is_inside |= place->pc >= low && place->pc - low < part->p_memsz;
        else if (part->p_type == PT_GNU_EH_FRAME)
            frames = (void *)low;
    }
    if (is_inside)
        place->frames = frames;
    return is_inside;
}

int __wrap__dl_find_object(void *pc, struct find_result *object)
{
    uintptr_t function = atomic_load(&find_object);
    if (function != 0)
        return ((find_function)function)(pc, object);
    /* Older glibc: for libgcc's unwinder alone, as it did it there, and never in a signal handler
     * (rk_frames_can_be_found). Without it, an exception could not pass through our wrappers. */
    struct place place = {.pc = (uintptr_t)pc};
    dl_iterate_phdr(match_object, &place);
    *object = (struct find_result){.frames = place.frames};
    return place.frames != NULL ? 0 : -1;
}

bool rk_frames_can_be_found(void)
{
    return atomic_load(&find_object) != 0;
}

/* The address of the function's own information; 0 where there is none. */
static uintptr_t search(struct rk_checked_memory *memory, uintptr_t header, uintptr_t pc)
{
    struct rk_reader reader = {.memory = memory, .at = header, .end = UINTPTR_MAX};
    uint32_t start = (uint32_t)rk_read_number(&reader, 4);
    if (reader.bad || (start & 0xff) != 1 || (start >> 16 & 0xff) != HEADER_COUNT ||
        start >> 24 != HEADER_TABLE)
        return 0;
    rk_read_encoded(&reader, start >> 8 & 0xff, header);
    uint64_t count = rk_read_number(&reader, 4), low = 0, high = count;
    uintptr_t table = reader.at;
    while (!reader.bad && low < high) {
        uint64_t middle = low + (high - low) / 2;
        reader.at = table + 8 * middle;
        if (header + (uintptr_t)rk_read_signed(&reader, 4) <= pc)
            low = middle + 1;
        else
            high = middle;
    }
    if (reader.bad || low == 0)
        return 0;
    reader.at = table + 8 * (low - 1) + 4;
    uintptr_t found = header + (uintptr_t)rk_read_signed(&reader, 4);
    return reader.bad ? 0 : found;
}

/* Enters one entry of .eh_frame: its length, and where its second word is. */
static bool open_entry(struct rk_reader *reader, uintptr_t at)
{
    reader->at = at;
    reader->end = UINTPTR_MAX;
    reader->bad = false;
    uint64_t length = rk_read_number(reader, 4);
    if (length == 0xffffffff)
        length = rk_read_number(reader, 8);
    reader->end = reader->at + (uintptr_t)length;
    return !reader->bad && length != 0 && reader->end > reader->at;
}

static bool read_common(struct information *information, struct rk_reader *reader)
{
    char augmentation[8] = "";
    if (rk_read_number(reader, 4) != 0)
        return false;
    unsigned version = (unsigned)rk_read_number(reader, 1);
    for (size_t i = 0;; i++) {
        if (i == sizeof augmentation)
            return false;
        augmentation[i] = (char)rk_read_number(reader, 1);
        if (augmentation[i] == '\0')
            break;
    }
    information->code_alignment = rk_read_uleb(reader);
    information->data_alignment = rk_read_sleb(reader);
    uint64_t column = version == 1 ? rk_read_number(reader, 1) : rk_read_uleb(reader);
    if ((version != 1 && version != 3) || column != RK_RETURN_COLUMN)
        return false;
    if (augmentation[0] != 'z' && augmentation[0] != '\0')
        return false;
    information->augmented = augmentation[0] == 'z';
    uint64_t length = information->augmented ? rk_read_uleb(reader) : 0;
    uintptr_t instructions = reader->at + (uintptr_t)length;
    for (size_t i = 1; information->augmented && augmentation[i] != '\0'; i++) {
        if (augmentation[i] == 'R')
            information->encoding = (unsigned)rk_read_number(reader, 1);
        else if (augmentation[i] == 'L')
            rk_read_number(reader, 1);
        else if (augmentation[i] == 'P') {
            unsigned encoding = (unsigned)rk_read_number(reader, 1);
            rk_read_encoded(reader, encoding & 0x7f, 0);
        } else if (augmentation[i] == 'S')
            information->signal_frame = true;
        else if (augmentation[i] != 'B')
            return false;
    }
    reader->at = instructions;
    information->common = *reader;
    return !reader->bad;
}

static enum rk_step find_information(struct rk_checked_memory *memory, uintptr_t pc,
                                     struct information *information)
{
    struct find_result object;
    if (__wrap__dl_find_object((void *)pc, &object) != 0 || object.frames == NULL)
        return RK_STEP_UNKNOWN;
    uintptr_t entry = search(memory, (uintptr_t)object.frames, pc);
    *information = (struct information){.own = {.memory = memory}, .common = {.memory = memory}};
    if (entry == 0)
        return RK_STEP_UNKNOWN;
    struct rk_reader *own = &information->own, common = {.memory = memory};
    if (!open_entry(own, entry))
        return RK_STEP_BROKEN;
    uintptr_t here = own->at;
    uintptr_t distance = (uintptr_t)rk_read_number(own, 4);
    if (own->bad || distance == 0 || !open_entry(&common, here - distance) ||
        !read_common(information, &common))
        return RK_STEP_BROKEN;
    information->begin = rk_read_encoded(own, information->encoding, 0);
    information->end = information->begin + rk_read_encoded(own, information->encoding & 0x0f, 0);
    if (information->augmented) {
        uint64_t length = rk_read_uleb(own);
        own->at += (uintptr_t)length;
    }
    if (own->bad)
        return RK_STEP_BROKEN;
    return information->begin <= pc && pc < information->end ? RK_STEP_DONE : RK_STEP_UNKNOWN;
}

static void set(struct rules *rules, uint64_t number, enum rule_kind kind, uintptr_t value)
{
    if (number < RK_REGISTERS)
        rules->of[number] = (struct rule){.kind = (uint8_t)kind, .value = value};
}

static void set_block(struct rk_reader *reader, struct rules *rules, uint64_t number,
                      enum rule_kind kind)
{
    uint64_t length = rk_read_uleb(reader);
    set(rules, number, kind, reader->at);
    if (number < RK_REGISTERS)
        rules->of[number].length = (uint32_t)length;
    reader->at += (uintptr_t)length;
}

struct run {
    const struct information *information;
    struct rk_reader *reader;
    struct rules *rules;
    const struct rules *initial;
    struct rules remembered[REMEMBERED];
    int depth;
    uintptr_t location;
};

/* The instructions with an operand of their own; DWARF 5, section 7.24. False for what is unknown. */
static bool run_extended(struct run *run, unsigned instruction)
{
    struct rk_reader *reader = run->reader;
    struct rules *rules = run->rules;
    int64_t factor = run->information->data_alignment;
    uint64_t number;
    switch (instruction) {
    case 0x00: /* nop */
        return true;
    case 0x01: /* set_loc */
        run->location = rk_read_encoded(reader, run->information->encoding, 0);
        return true;
    case 0x02: /* advance_loc1, 2 and 4 */
    case 0x03:
    case 0x04:
        run->location += (uintptr_t)(rk_read_number(reader, (size_t)1 << (instruction - 2)) *
                                     run->information->code_alignment);
        return true;
    case 0x05: /* offset_extended */
        number = rk_read_uleb(reader);
        set(rules, number, AT_OFFSET, (uintptr_t)((int64_t)rk_read_uleb(reader) * factor));
        return true;
    case 0x06: /* restore_extended */
        number = rk_read_uleb(reader);
        if (number < RK_REGISTERS)
            rules->of[number] = run->initial->of[number];
        return true;
    case 0x07: /* undefined */
        set(rules, rk_read_uleb(reader), UNDEFINED, 0);
        return true;
    case 0x08: /* same_value */
        set(rules, rk_read_uleb(reader), SAME, 0);
        return true;
    case 0x09: /* register */
        number = rk_read_uleb(reader);
        set(rules, number, IN_REGISTER, (uintptr_t)rk_read_uleb(reader));
        return true;
    case 0x0a: /* remember_state */
        if (run->depth == REMEMBERED)
            return false;
        run->remembered[run->depth++] = *rules;
        return true;
    case 0x0b: /* restore_state */
        if (run->depth == 0)
            return false;
        *rules = run->remembered[--run->depth];
        return true;
    case 0x0c: /* def_cfa */
    case 0x12: /* def_cfa_sf */
        rules->cfa_register = rk_read_uleb(reader);
        rules->cfa_offset =
            instruction == 0x0c ? (int64_t)rk_read_uleb(reader) : rk_read_sleb(reader) * factor;
        rules->cfa_expression = 0;
        return true;
    case 0x0d: /* def_cfa_register */
        rules->cfa_register = rk_read_uleb(reader);
        rules->cfa_expression = 0;
        return true;
    case 0x0e: /* def_cfa_offset */
        rules->cfa_offset = (int64_t)rk_read_uleb(reader);
        return true;
    case 0x13: /* def_cfa_offset_sf */
        rules->cfa_offset = rk_read_sleb(reader) * factor;
        return true;
    case 0x0f: /* def_cfa_expression */
        rules->cfa_length = rk_read_uleb(reader);
        rules->cfa_expression = reader->at;
        reader->at += (uintptr_t)rules->cfa_length;
        return true;
    case 0x10: /* expression */
        set_block(reader, rules, rk_read_uleb(reader), AT_EXPRESSION);
        return true;
    case 0x16: /* val_expression */
        set_block(reader, rules, rk_read_uleb(reader), IS_EXPRESSION);
        return true;
    case 0x11: /* offset_extended_sf */
        number = rk_read_uleb(reader);
        set(rules, number, AT_OFFSET, (uintptr_t)(rk_read_sleb(reader) * factor));
        return true;
    case 0x14: /* val_offset */
        number = rk_read_uleb(reader);
        set(rules, number, IS_OFFSET, (uintptr_t)((int64_t)rk_read_uleb(reader) * factor));
        return true;
    case 0x15: /* val_offset_sf */
        number = rk_read_uleb(reader);
        set(rules, number, IS_OFFSET, (uintptr_t)(rk_read_sleb(reader) * factor));
        return true;
    case 0x2d: /* AArch64_negate_ra_state */
        rules->signed_return = !rules->signed_return;
        return true;
    case 0x2e: /* GNU_args_size */
        rk_read_uleb(reader);
        return true;
    case 0x2f: /* GNU_negative_offset_extended */
        number = rk_read_uleb(reader);
        set(rules, number, AT_OFFSET, (uintptr_t)(-(int64_t)rk_read_uleb(reader) * factor));
        return true;
    default:
        return false;
    }
}

/* The rules that hold at `until`. */
static bool run_instructions(struct run *run, uintptr_t until)
{
    struct rk_reader *reader = run->reader;
    for (int i = 0; i < MAX_INSTRUCTIONS && reader->at < reader->end; i++) {
        unsigned byte = (unsigned)rk_read_number(reader, 1), low = byte & 0x3f;
        switch (byte >> 6) {
        case 1: /* advance_loc */
            run->location += (uintptr_t)(low * run->information->code_alignment);
            break;
        case 2: /* offset */
            set(run->rules, low, AT_OFFSET,
                (uintptr_t)((int64_t)rk_read_uleb(reader) * run->information->data_alignment));
            break;
        case 3: /* restore */
            if (low < RK_REGISTERS)
                run->rules->of[low] = run->initial->of[low];
            break;
        default:
            if (!run_extended(run, low))
                return false;
        }
        if (reader->bad)
            return false;
        if (run->location > until)
            return true;
    }
    return reader->at == reader->end;
}

static bool evaluate_at(struct rk_checked_memory *memory, const struct rk_frame *frame,
                        uintptr_t expression, uint64_t length, const uintptr_t *initial,
                        uintptr_t *result)
{
    struct rk_reader reader = {
        .memory = memory, .at = expression, .end = expression + (uintptr_t)length};
    return rk_evaluate(&reader, frame->value, RK_REGISTERS, initial, result);
}

static bool recover(struct rk_checked_memory *memory, const struct rk_frame *frame,
                    const struct rule *rule, uintptr_t cfa, uintptr_t *value)
{
    uintptr_t at = cfa + rule->value;
    switch ((enum rule_kind)rule->kind) {
    case SAME:
    case UNDEFINED:
        return true;
    case AT_OFFSET:
        return rk_checked_read(memory, at, value, sizeof *value);
    case IS_OFFSET:
        *value = at;
        return true;
    case IN_REGISTER:
        if (rule->value >= RK_REGISTERS)
            return false;
        *value = frame->value[rule->value];
        return true;
    case AT_EXPRESSION:
        return evaluate_at(memory, frame, rule->value, rule->length, &cfa, &at) &&
               rk_checked_read(memory, at, value, sizeof *value);
    case IS_EXPRESSION:
        return evaluate_at(memory, frame, rule->value, rule->length, &cfa, value);
    }
    return false;
}

static uintptr_t without_signature(uintptr_t address, bool is_signed)
{
#if defined(__aarch64__)
    if (is_signed) {
        register uintptr_t link __asm__("x30") = address;
        __asm__("hint #7" : "+r"(link)); /* xpaclri */
        return link;
    }
#endif
    (void)is_signed;
    return address;
}

static enum rk_step apply(struct rk_checked_memory *memory, struct rk_frame *frame,
                          const struct information *information, const struct rules *rules)
{
    struct rk_frame caller = *frame;
    uintptr_t cfa;
    if (rules->cfa_expression != 0) {
        if (!evaluate_at(memory, frame, rules->cfa_expression, rules->cfa_length, NULL, &cfa))
            return RK_STEP_BROKEN;
    } else {
        if (rules->cfa_register >= RK_REGISTERS)
            return RK_STEP_BROKEN;
        cfa = frame->value[rules->cfa_register] + (uintptr_t)rules->cfa_offset;
    }
    if (rules->of[RK_RETURN_COLUMN].kind == UNDEFINED)
        return RK_STEP_OUTERMOST;
    caller.value[RK_STACK_POINTER] = cfa;
    for (int i = 0; i < RK_REGISTERS; i++)
        if (!recover(memory, frame, &rules->of[i], cfa, &caller.value[i]))
            return RK_STEP_BROKEN;
    caller.pc = without_signature(caller.value[RK_RETURN_COLUMN], rules->signed_return);
    caller.value[RK_RETURN_COLUMN] = caller.pc;
    caller.exact = information->signal_frame;
    if (caller.pc == 0)
        return RK_STEP_OUTERMOST;
    /* Stacks grow downwards: who called has more of it, unless a signal moved to another stack. */
    if (!information->signal_frame && cfa <= frame->value[RK_STACK_POINTER] && !frame->exact)
        return RK_STEP_BROKEN;
    *frame = caller;
    return RK_STEP_DONE;
}

enum rk_step rk_frame_step(struct rk_checked_memory *memory, struct rk_frame *frame)
{
    struct information information;
    struct rules rules = {0}, initial = {0};
    /* A return address may be that of the next function, after a call that does not return. */
    uintptr_t pc = frame->exact ? frame->pc : frame->pc - 1;
    enum rk_step step = find_information(memory, pc, &information);
    if (step != RK_STEP_DONE)
        return step;
    struct run common = {.information = &information,
                         .reader = &information.common,
                         .rules = &initial,
                         .initial = &rules};
    if (!run_instructions(&common, UINTPTR_MAX))
        return RK_STEP_BROKEN;
    rules = initial;
    struct run own = {.information = &information,
                      .reader = &information.own,
                      .rules = &rules,
                      .initial = &initial,
                      .location = information.begin};
    if (!run_instructions(&own, pc))
        return RK_STEP_BROKEN;
    return apply(memory, frame, &information, &rules);
}
