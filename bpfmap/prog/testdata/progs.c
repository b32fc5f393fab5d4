// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Every program counts the same kind of event, and which version of it saw the event. Compiled several times: VERSION
// says which counter it adds to, STYLE what its flow table looks like, BROKEN makes the verifier reject one, and SLOW keeps
// a packet for some 100 ms before it is counted.

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
static __u64 (*bpf_get_current_pid_tgid)(void) = (void *)14;
static long (*bpf_skb_load_bytes)(const void *skb, __u32 offset, void *to, __u32 len) = (void *)26;

enum { HASH = 1, ARRAY = 2, PROG_ARRAY = 3, PERCPU_HASH = 5, LRU_HASH = 9 };

// The first fields of struct __sk_buff and struct xdp_md in linux/bpf.h.
struct __sk_buff {
	__u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority;
	__u32 ingress_ifindex, ifindex, tc_index, cb[5], hash, tc_classid, data, data_end;
};

struct xdp_md {
	__u32 data, data_end;
};

// One counter for each version: what every event adds up to tells whether one was lost or seen twice.
struct {
	__uint(type, ARRAY);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, __u64);
} hits SEC(".maps");

// The process whose system calls count; 0 is none.
struct {
	__uint(type, ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} only SEC(".maps");

// STYLE 2 has a field more, in front of the old one. STYLE 3 has the same size as STYLE 1 and means something else.
struct flow {
#if STYLE == 2
	__u64 bytes;
#endif
#if STYLE == 3
	__u32 errors, packets;
#else
	__u64 packets;
#endif
};

struct {
	__uint(type, HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct flow);
} flows SEC(".maps");

struct {
	__uint(type, PERCPU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct flow);
} percpu SEC(".maps");

#if defined(SLOW) || STYLE == 3
// The kernel rounds the entries up to a multiple of the CPUs.
struct {
	__uint(type, LRU_HASH);
	__uint(map_flags, 2 /* BPF_F_NO_COMMON_LRU */);
	__uint(max_entries, 101);
	__type(key, __u32);
	__type(value, __u64);
} recent SEC(".maps");
#endif

#define PORT 7777

static __attribute__((always_inline)) void count_flow(void *map, __u32 key, __u64 bytes)
{
	struct flow *f = bpf_map_lookup_elem(map, &key);

	if (!f) {
		struct flow zero = {};

		bpf_map_update_elem(map, &key, &zero, 1 /* BPF_NOEXIST */);
		f = bpf_map_lookup_elem(map, &key);
	}
	if (!f)
		return;
	__sync_fetch_and_add(&f->packets, 1);
#if STYLE == 2
	__sync_fetch_and_add(&f->bytes, bytes);
#endif
}

static __attribute__((always_inline)) void count(void)
{
	__u32 key = VERSION;
	__u64 *n = bpf_map_lookup_elem(&hits, &key);

	if (n)
		__sync_fetch_and_add(n, 1);
}

#ifdef SLOW
static long (*bpf_loop)(__u32 n, void *callback, void *ctx, __u64 flags) = (void *)181;

static long spin(__u32 i, void *ctx)
{
	return 0;
}
#endif

// packet counts UDP to PORT; port is where the destination port is, the flow is by the last byte of the payload's start.
static __attribute__((always_inline)) void packet(struct __sk_buff *skb, __u32 at)
{
	__u16 port = 0;
	__u32 flow = 0;

	if (bpf_skb_load_bytes(skb, at, &port, 2) < 0 || port != __builtin_bswap16(PORT))
		return;
	bpf_skb_load_bytes(skb, at + 6, &flow, 4);
#ifdef SLOW
	bpf_loop(1 << 23, spin, 0, 0);
#endif
	count();
	count_flow(&flows, flow, skb->len);
	count_flow(&percpu, flow, skb->len);
}

SEC("tc") int on_tcx(struct __sk_buff *skb)
{
	packet(skb, 36);
	return -1; // TCX_NEXT
}

SEC("cgroup_skb/egress") int on_cgroup(struct __sk_buff *skb)
{
	packet(skb, 22);
	return 1;
}

SEC("xdp") int on_xdp(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (data + 46 > end || *(__u16 *)(data + 36) != __builtin_bswap16(PORT))
		return 2; // XDP_PASS
	count();
	return 2;
}

static __attribute__((always_inline)) void syscall(void)
{
	__u32 zero = 0;
	__u32 *pid = bpf_map_lookup_elem(&only, &zero);

	if (pid && *pid && *pid == bpf_get_current_pid_tgid() >> 32)
		count();
}

SEC("tracepoint/syscalls/sys_enter_getpgid") int on_tracepoint(void *ctx)
{
	syscall();
	return 0;
}

SEC("raw_tp/sys_enter") int on_raw(__u64 *ctx)
{
	if (ctx[1] == 121) // getpgid on x86-64
		syscall();
	return 0;
}

SEC("socket") int on_socket(struct __sk_buff *skb)
{
	count();
	return VERSION == 2 ? 0 : skb->len; // the second version drops
}

#ifdef BROKEN
SEC("tc") int broken(struct __sk_buff *skb)
{
	__u8 *data = (void *)(long)skb->data;

	return data[99]; // never checked against data_end
}

SEC("tc") int endless(struct __sk_buff *skb)
{
	volatile __u32 sum = 0;

	for (__u32 i = 0; i < 1 << 24; i++)
		sum += i;
	return sum;
}
#endif

#ifdef TAILS
static long (*bpf_tail_call)(void *ctx, void *map, __u32 at) = (void *)12;

SEC("tc") int tail(struct __sk_buff *skb)
{
	packet(skb, 36);
	return -1;
}

struct {
	__uint(type, PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	int (*values[])(struct __sk_buff *);
} tails SEC(".maps") = {.values = {tail}};

// head counts nothing by itself: the program it jumps to does.
SEC("tc") int head(struct __sk_buff *skb)
{
	bpf_tail_call(skb, &tails, 0);
	return -1;
}
#endif

char _license[] SEC("license") = "GPL";
