//! CAs and TLS of a running server, which change when keys rotate.

use std::{net::IpAddr, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use orlop_net::{ClientVerifier, ServerTls};
use orlop_server::auth::pki::Authority;

/// Time before they expire at which certificates are replaced.
pub(super) const RENEWAL_MARGIN: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// CAs that are in use now.
pub(super) struct Trust {
    /// Signs certificates.
    pub(super) authority: Authority,
    /// CAs of clients, PEM.
    pub(super) client_ca: String,
    /// CAs of this server's certificate towards extension API servers, PEM.
    pub(super) front_proxy_ca: String,
    /// Former CAs, PEM.
    pub(super) retired: String,
}

/// Shared by whoever signs or publishes.
pub(super) type SharedTrust = Arc<ArcSwap<Trust>>;

/// The API of a node in this process.
pub(super) struct Kubelet {
    pub(super) tls: ServerTls,
    pub(super) verifier: Arc<ClientVerifier>,
    pub(super) name: String,
    pub(super) address: IpAddr,
}

/// TLS of the resource metrics API in this process.
pub(super) struct MetricsTls {
    pub(super) tls: ServerTls,
    /// Verifies the certificates of API servers.
    pub(super) verifier: Arc<ClientVerifier>,
}
