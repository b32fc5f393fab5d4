// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"encoding/binary"
	"fmt"
	"syscall"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// xdpAt lists the XDP programs at an interface of this network namespace: one, and another one if the device runs it itself.
// Links can be listed, too, but with CAP_SYS_ADMIN only, and they say the number of an interface and not the namespace it
// counts in.
func xdpAt(index int) (programs []ebpf.ProgramID, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	req := struct {
		head unix.NlMsghdr
		body unix.IfInfomsg
	}{unix.NlMsghdr{Type: unix.RTM_GETLINK, Flags: unix.NLM_F_REQUEST}, unix.IfInfomsg{Index: int32(index)}}
	req.head.Len = uint32(unsafe.Sizeof(req))
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&req)), unsafe.Sizeof(req))
	if err := unix.Sendto(fd, raw, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	reply := make([]byte, 64<<10)
	n, _, err := unix.Recvfrom(fd, reply, 0)
	if err != nil {
		return nil, err
	}
	messages, err := syscall.ParseNetlinkMessage(reply[:n])
	if err != nil || len(messages) == 0 {
		return nil, fmt.Errorf("ask for interface %d: %d messages: %w", index, len(messages), err)
	}
	m := messages[0]
	if m.Header.Type == unix.NLMSG_ERROR && len(m.Data) >= 4 {
		return nil, fmt.Errorf("ask for interface %d: %w", index, unix.Errno(-int32(binary.NativeEndian.Uint32(m.Data))))
	}
	attrs, err := syscall.ParseNetlinkRouteAttr(&m)
	if err != nil {
		return nil, err
	}
	for _, attr := range attrs {
		if attr.Attr.Type&^unix.NLA_F_NESTED != unix.IFLA_XDP {
			continue
		}
		for in := attr.Value; len(in) >= 4; {
			size, kind := int(binary.NativeEndian.Uint16(in)), binary.NativeEndian.Uint16(in[2:])
			switch kind {
			case unix.IFLA_XDP_DRV_PROG_ID, unix.IFLA_XDP_SKB_PROG_ID, unix.IFLA_XDP_HW_PROG_ID:
				if size >= 8 && len(in) >= 8 {
					programs = append(programs, ebpf.ProgramID(binary.NativeEndian.Uint32(in[4:])))
				}
			}
			in = in[min(len(in), max(4, (size+3)&^3)):]
		}
	}
	return programs, nil
}
