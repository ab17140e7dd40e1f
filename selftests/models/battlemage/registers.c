// SPDX-License-Identifier: GPL-2.0-only
/*
 * The registers in BAR 0: which unit has one, and all those that only hold a value. An access to a
 * register that is in none of these tables is an error of the model, and a failure of the test.
 *
 * Names are those of the driver (regs/xe_*_regs.h).
 */
#include "battlemage.h"

#include <sys/mman.h>

#define GIB (1ULL << 30)
enum { SG_TILE_ADDR_RANGE = 0x1083a0, GSMBASE = 0x108100, DSMBASE = 0x1080c0 };

static const struct plain table[] = {
	{ 0x000c60, 1, 4, CONSTANT, 0, "MTL_MIRROR_TARGET_WP1: the frequency" },
	{ 0x000d00, 1, 4, CONSTANT, 2 << 3 | 3 << 1, "RPM_CONFIG0: 38.4 MHz" },
	{ 0x000d84, 1, 4, CONSTANT, 0, "FORCEWAKE_ACK_RENDER" },
	{ 0x000d8c, 1, 4, CONSTANT, 20 << 22 | 1 << 14 | 4, "GMD_ID: Xe2_HPG 20.01, step B0" },
	{ 0x000dfc, 1, 4, CONSTANT, 0, "FORCEWAKE_ACK_GT" },
	{ 0x000fd0, 1, 4, CONSTANT, 1, "STEER_SEMAPHORE: it is ours" },
	{ 0x000fd4, 1, 4, HOLDS, 0, "MTL_MCR_SELECTOR" },
	{ 0x004000, 16, 4, HOLDS, 0, "XELP_GLOBAL_MOCS" },
	{ 0x004148, 1, 4, HOLDS, 0, "STATELESS_COMPRESSION_CTRL" },
	{ 0x004194, 1, 4, HOLDS, 0, "XE2_GAMREQSTRM_CTRL" },
	{ 0x0047fc, 10, 4, HOLDS, 0, "_PAT_ATS, _PAT_INDEX 0 to 7, _PAT_PTA" },
	{ 0x004848, 20, 4, HOLDS, 0, "_PAT_INDEX 8 to 27" },
	{ 0x008800, 1, 4, CONSTANT, 0, "XEHP_FLAT_CCS_BASE_ADDR: no compression" },
	{ 0x009114, 1, 4, CONSTANT, 1 << 16, "FUSE4: CCS 0" },
	{ 0x009118, 1, 4, CONSTANT, 1 << 16 | 0xf << 4, "FUSE3: one node, four banks" },
	{ 0x009120, 1, 4, CONSTANT, 1 << 2, "FUSE2: production hardware" },
	{ 0x009134, 1, 4, CONSTANT, 0xff, "EU_ENABLE" },
	{ 0x00913c, 1, 4, CONSTANT, 0xf, "XELP_GT_GEOMETRY_DSS_ENABLE" },
	{ 0x009140, 1, 4, CONSTANT, 0, "GT_VEBOX_VDBOX_DISABLE" },
	{ 0x009144, 1, 4, CONSTANT, 0xf, "XEHP_GT_COMPUTE_DSS_ENABLE" },
	{ 0x009148, 4, 4, CONSTANT, 0, "more masks of subslices" },
	{ 0x00941c, 1, 4, CONSTANT, 0, "GDRST: done" },
	{ 0x00a008, 1, 4, HOLDS, 0, "RPNSWREQ" },
	{ 0x00a024, 1, 4, HOLDS, 0, "RP_CONTROL" },
	{ 0x00a090, 2, 4, HOLDS, 0, "RC_CONTROL, RC_STATE" },
	{ 0x00a168, 1, 4, HOLDS, 0, "PMINTRMSK" },
	{ 0x00a188, 1, 4, CONSTANT, 0, "FORCEWAKE_GT" },
	{ 0x00a210, 1, 4, HOLDS, 0, "POWERGATE_ENABLE" },
	{ 0x00a278, 1, 4, CONSTANT, 0, "FORCEWAKE_RENDER" },
	{ 0x00b0c8, 1, 4, HOLDS, 0, "LSN_VC_REG2" },
	{ 0x00b108, 1, 4, HOLDS, 0, "L3SQCREG3" },
	{ 0x00b158, 1, 4, HOLDS, 0, "XEHP_L3SQCREG5" },
	{ 0x00b1ac, 1, 4, HOLDS, 0, "XEHPC_L3CLOS_MASK" },
	{ 0x00b404, 1, 4, CONSTANT, 0, "XE2_GLOBAL_INVAL: done" },
	{ 0x00b418, 1, 4, CONSTANT, 0, "XE2_TDF_CTRL: done" },
	{ 0x00c000, 1, 4, CONSTANT, 0, "GUC_STATUS" },
	{ 0x00c050, 1, 4, CONSTANT, 0, "GUC_WOPCM_SIZE" },
	{ 0x00c064, 1, 4, HOLDS, 0, "GUC_SHIM_CONTROL" },
	{ 0x00c180, 16, 4, HOLDS, 0, "SOFT_SCRATCH: parameters of the GuC" },
	{ 0x00c200, 64, 4, HOLDS, 0, "UOS_RSA_SCRATCH: the signature" },
	{ 0x00c300, 5, 4, HOLDS, 0, "DMA_ADDR_0, DMA_ADDR_1, DMA_COPY_SIZE" },
	{ 0x00c314, 1, 4, CONSTANT, 0, "DMA_CTRL" },
	{ 0x00c340, 1, 4, CONSTANT, 0, "DMA_GUC_WOPCM_OFFSET" },
	{ 0x00cf7c, 2, 4, CONSTANT, 0, "PVC_GUC_TLB_INV_DESC: the GuC's own TLB, done" },
	{ 0x00daf4, 2, 4, HOLDS, 0, "OAG_OACONTROL, OAG_OA_DEBUG" },
	{ 0x00e194, 1, 4, HOLDS, 0, "HALF_SLICE_CHICKEN7" },
	{ 0x00e48c, 1, 4, HOLDS, 0, "ROW_CHICKEN4" },
	{ 0x00e49c, 1, 4, HOLDS, 0, "ROW_CHICKEN3" },
	{ 0x00e4c4, 1, 4, HOLDS, 0, "TDL_TSL_CHICKEN" },
	{ 0x00e4f0, 1, 4, HOLDS, 0, "ROW_CHICKEN" },
	{ 0x00e530, 1, 4, HOLDS, 0, "RT_CTRL" },
	{ 0x00e7c8, 2, 4, HOLDS, 0, "LSC_CHICKEN_BIT_0" },
	{ 0x014800, 1, 4, HOLDS, 0, "RCU_MODE" },
	{ 0x0444e4, 1, 4, HOLDS, 0, "PCU_IRQ: IMR" },
	{ 0x0444ec, 1, 4, HOLDS, 0, "PCU_IRQ: IER" },
	{ 0x0444f4, 1, 4, HOLDS, 0, "GU_MISC_IRQ: IMR" },
	{ 0x0444fc, 1, 4, HOLDS, 0, "GU_MISC_IRQ: IER" },
	{ 0x10100c, 1, 4, CONSTANT, 0, "GU_CNTL_PROTECTED" },
	{ 0x101010, 1, 4, CONSTANT, 128, "GU_CNTL: VRAM is initialised" },
	{ 0x101018, 1, 4, CONSTANT, 0, "GU_DEBUG" },
	{ DSMBASE, 2, 4, CONSTANT, 0, "stolen memory" },
	{ GSMBASE, 2, 4, CONSTANT, 0, "end of the VRAM that is used" },
	{ 0x1082c0, 1, 4, CONSTANT, 2 << 7, "STOLEN_RESERVED: WOPCM of 4 MiB" },
	{ 0x1082c4, 1, 4, CONSTANT, 0, "STOLEN_RESERVED, the upper half" },
	{ SG_TILE_ADDR_RANGE, 1, 4, CONSTANT, 0, "GiB of VRAM" },
	{ 0x138000, 1, 4, CONSTANT, 24 << 16 | 144, "RP_STATE_CAP: 400 to 2400 MHz" },
	{ 0x138008, 2, 4, CONSTANT, 24, "RPA, RPE" },
	{ 0x138124, 1, 4, CONSTANT, 0, "PCODE_MAILBOX" },
	{ 0x138128, 2, 4, HOLDS, 0, "PCODE_DATA0, PCODE_DATA1" },
	{ 0x13816c, 1, 4, HOLDS, 0, "GT_PM_CONFIG" },
	{ 0x138320, 1, 4, CONSTANT, 0, "PCODE_SCRATCH" },
	{ 0x190030, 5, 4, HOLDS, 0, "interrupts enabled: engines, GuC" },
	{ 0x190048, 1, 4, HOLDS, 0, "CCS_RSVD_INTR_ENABLE" },
	{ 0x190090, 32, 4, HOLDS, 0, "interrupts masked: engines, GuC" },
	{ 0x190110, 4, 4, HOLDS, 0, "interrupts masked: BCS 1 to 8" },
	{ 0x1901f0, 1, 4, CONSTANT, 0, "GUC_HOST_INTERRUPT" },
	{ 0x1901f8, 1, 4, CONSTANT, 0, "VF_CAP_REG: not a virtual function" },
	{ 0x190240, 4, 4, HOLDS, 0, "VF_SW_FLAG: early messages" },
	{ 0x280164, 2, 4, CONSTANT, 0, "BMG telemetry: energy and temperature, none" },
	{ 0x374c48, 1, 4, CONSTANT, 1 << 3, "HECI_FWSTS2: flash access is not overridden" },
	{ 0x380d8c, 1, 4, CONSTANT, 0, "GMD_ID of the media GT: there is none" },
};

/* The same for each engine, from its base on. */
static const struct plain engine_table[] = {
	{ 0x030, 4, 4, CONSTANT, 0, "RING_TAIL, HEAD, START, CTL" },
	{ 0x048, 1, 4, CONSTANT, 0, "RING_START_UDW" },
	{ 0x050, 1, 4, HOLDS, 0, "RING_PSMI_CTL" },
	{ 0x054, 1, 4, CONSTANT, 0x100, "RING_PWRCTX_MAXCNT: more than RING_IDLEDLY" },
	{ 0x05c, 2, 4, CONSTANT, 0, "RING_ACTHD_UDW, RING_DMA_FADD_UDW" },
	{ 0x068, 2, 4, CONSTANT, 0, "RING_IPEHR, RING_INSTDONE" },
	{ 0x074, 2, 4, CONSTANT, 0, "RING_ACTHD, RING_DMA_FADD" },
	{ 0x080, 1, 4, HOLDS, 0, "RING_HWS_PGA" },
	{ 0x098, 1, 4, HOLDS, 0, "RING_HWSTAM" },
	{ 0x09c, 1, 4, HOLDS, 0, "RING_MI_MODE" },
	{ 0x0a8, 1, 4, HOLDS, 0, "RING_IMR" },
	{ 0x0b0, 3, 4, CONSTANT, 0, "RING_EIR, EMR, ESR" },
	{ 0x0c4, 1, 4, HOLDS, 0, "RING_CMD_CCTL" },
	{ 0x0d4, 1, 4, HOLDS, 0, "CSFE_CHICKEN1" },
	{ 0x108, 1, 4, CONSTANT, 0, "INDIRECT_RING_STATE" },
	{ 0x140, 1, 4, CONSTANT, 0, "RING_BBADDR" },
	{ 0x168, 1, 4, CONSTANT, 0, "RING_BBADDR_UDW" },
	{ 0x234, 2, 4, CONSTANT, 0, "RING_EXECLIST_STATUS" },
	{ 0x23c, 1, 4, HOLDS, 0, "RING_IDLEDLY" },
	{ 0x240, 1, 4, CONSTANT, 0, "RING_CURRENT_LRCA" },
	{ 0x29c, 1, 4, HOLDS, 0, "GFX_MODE" },
	{ 0x4d0, 20, 4, HOLDS, 0, "RING_FORCE_TO_NONPRIV, RING_EXECLIST_SQ_CONTENTS" },
};

static const u32 engines[] = { 0x002000, 0x01a000, 0x022000, 0x3ee000 };

u32 *plain(struct gpu *g, u32 at)
{
	return at < REGISTERS ? &g->regs[at / 4] : NULL;
}

u32 masked(u32 old, u32 val)
{
	return (old & ~(val >> 16)) | (val & val >> 16);
}

static const struct plain *find(u32 at)
{
	const struct plain *p = plain_find(table, ARRAY_SIZE(table), at);

	for (size_t i = 0; !p && i < ARRAY_SIZE(engines); i++)
		p = plain_find(engine_table, ARRAY_SIZE(engine_table), at - engines[i]);
	return p;
}

bool plain_read(struct gpu *g, u32 at, u32 *val)
{
	*val = g->regs[at / 4];
	return find(at);
}

bool plain_write(struct gpu *g, u32 at, u32 val)
{
	const struct plain *p = find(at);

	if (p && p->kind == HOLDS)
		g->regs[at / 4] = val;
	return p;
}

void plain_reset(struct gpu *g)
{
	u64 top = g->opt.vram - 16 * (GIB >> 10);

	madvise(g->regs, REGISTERS, MADV_REMOVE);	/* zeroes */
	plain_init(g->regs, table, ARRAY_SIZE(table));
	for (size_t i = 0; i < ARRAY_SIZE(engines); i++)
		plain_init(g->regs + engines[i] / 4, engine_table, ARRAY_SIZE(engine_table));
	*plain(g, SG_TILE_ADDR_RANGE) = g->opt.vram / GIB << 8;
	memcpy(plain(g, GSMBASE), &top, 8);
	top += 8 * (GIB >> 10);
	memcpy(plain(g, DSMBASE), &top, 8);
}

u32 register_read(struct vfio_user *v, u32 at)
{
	struct gpu *g = container_of(v, struct gpu, dev);
	u32 val = 0;

	g->stats.register_reads++;
	if (irq_read(g, at, &val) || plain_read(g, at, &val))
		return val;
	plain_unknown(v, &g->seen[at / 4], at, "read", val);
	return val;
}

void register_write(struct vfio_user *v, u32 at, u32 val)
{
	struct gpu *g = container_of(v, struct gpu, dev);

	g->stats.register_writes++;
	if (!irq_write(g, at, val) && !guc_write(g, at, val) && !gt_write(g, at, val) &&
	    !plain_write(g, at, val))
		plain_unknown(v, &g->seen[at / 4], at, "write of", val);
}
