//! Command line of the ranges that nodes get addresses for their pods from.

use orlop_controllers::{BadRange, NodeRanges, Range};

/// Options of node-ipam-controller, by the names that kube-controller-manager has for them.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Addresses of pods")]
pub(super) struct NodeRangeOptions {
    /// Give each node a part of --cluster-cidr for its pods (spec.podCIDRs), for kubelets and network plugins that
    /// need one. A node of "orlop node" has its own --pod-range.
    #[arg(long, requires = "cluster_cidr")]
    allocate_node_cidrs: bool,

    /// Range of the addresses of pods, or two, one of IPv4 and one of IPv6.
    #[arg(long, value_delimiter = ',', value_name = "CIDR[,CIDR]")]
    cluster_cidr: Vec<Range>,

    /// Prefix length of a node's part of an IPv4 range.
    #[arg(long, alias = "node-cidr-mask-size", default_value_t = 24, value_name = "BITS")]
    node_cidr_mask_size_ipv4: u8,

    /// Prefix length of a node's part of an IPv6 range.
    #[arg(long, default_value_t = 64, value_name = "BITS")]
    node_cidr_mask_size_ipv6: u8,
}

impl NodeRangeOptions {
    /// Returns the ranges, if nodes are to have a part.
    pub(super) fn ranges(&self) -> Result<Option<NodeRanges>, BadRange> {
        if !self.allocate_node_cidrs {
            return Ok(None);
        }
        NodeRanges::new(&self.cluster_cidr, self.node_cidr_mask_size_ipv4, self.node_cidr_mask_size_ipv6)
            .map(Some)
    }
}
