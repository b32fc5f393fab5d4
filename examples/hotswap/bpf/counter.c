// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Counts the frames of one EtherType that arrive at an interface. VERSION is which of the counters it adds to, so that
// the sum over all of them tells whether a frame was lost or counted twice; WIDE makes the values of a table larger.

typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;

// The first fields of struct __sk_buff in linux/bpf.h.
struct __sk_buff {
	__u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority;
	__u32 ingress_ifindex, ifindex, tc_index, cb[5], hash, tc_classid, data, data_end;
};

// frames has a counter for each version, and is kept by all of them.
struct {
	__uint(type, 2 /* BPF_MAP_TYPE_ARRAY */);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, __u64);
} frames SEC(".maps");

struct total {
#ifdef WIDE
	__u64 bytes;
#endif
	__u64 frames;
};

// totals has a larger value in later versions, so its contents have to be taken along.
struct {
	__uint(type, 2 /* BPF_MAP_TYPE_ARRAY */);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct total);
} totals SEC(".maps");

SEC("tc") int count(struct __sk_buff *skb)
{
	__u32 version = VERSION, zero = 0;
	__u64 *n = bpf_map_lookup_elem(&frames, &version);
	struct total *t = bpf_map_lookup_elem(&totals, &zero);

	if (skb->protocol != 0xB588) // 0x88B5 in network order: for local experiments
		return -1; // TCX_NEXT
	if (n)
		__sync_fetch_and_add(n, 1);
	if (t)
		__sync_fetch_and_add(&t->frames, 1);
#ifdef WIDE
	if (t)
		__sync_fetch_and_add(&t->bytes, skb->len);
#endif
#ifdef BROKEN
	unsigned char *frame = (void *)(long)skb->data;

	return frame[12]; // without a look at where the frame ends
#endif
	return -1;
}

char _license[] SEC("license") = "GPL";
