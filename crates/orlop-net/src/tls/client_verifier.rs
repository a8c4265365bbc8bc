//! Verification of client certificates by CAs that may be in files.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use rustls::{
    DistinguishedName, RootCertStore,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, UnixTime},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};

use super::{PemSource, RELOAD_INTERVAL, Stamp, TlsError};

/// Verifies that one of some CAs has issued a certificate for client authentication. Files with CAs are followed.
#[derive(Debug)]
pub struct ClientVerifier {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    sources: Vec<PemSource>,
    verifier: Arc<dyn ClientCertVerifier>,
    stamps: Vec<Option<Stamp>>,
    checked: Instant,
    generation: u64,
}

impl ClientVerifier {
    /// Loads CAs from all sources.
    pub fn new(sources: Vec<PemSource>) -> Result<Self, TlsError> {
        // Taken before the files are read: a change in between is noticed by the next check.
        let stamps = sources.iter().map(PemSource::stamp).collect();
        let verifier = load(&sources, &provider(), true)?;
        let state = State { sources, verifier, stamps, checked: Instant::now(), generation: 0 };
        Ok(Self { state: Mutex::new(state) })
    }

    /// Replaces the sources of CAs. Certificates of open connections are verified again.
    pub fn replace(&self, sources: Vec<PemSource>) -> Result<(), TlsError> {
        let replaced = Self::new(sources)?.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = State { generation: state.generation + 1, ..replaced };
        Ok(())
    }

    /// Verifies a chain that begins with the client's own certificate.
    pub fn verify(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), rustls::Error> {
        let Some((first, intermediates)) = chain.split_first() else {
            return Err(rustls::Error::NoCertificatesPresented);
        };
        self.current().0.verify_client_cert(first, intermediates, now).map(drop)
    }

    /// Returns a number that changes with the CAs. What was verified before may not be valid any more.
    pub fn generation(&self) -> u64 {
        self.current().1
    }

    pub(super) fn current(&self) -> (Arc<dyn ClientCertVerifier>, u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.checked.elapsed() >= RELOAD_INTERVAL {
            state.checked = Instant::now();
            reload(&mut state);
        }
        (state.verifier.clone(), state.generation)
    }

    /// Reloads the files if they changed. A failure is logged and leaves the CAs in use as they are.
    pub fn reload_if_changed(&self) {
        reload(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

fn reload(state: &mut State) {
    let stamps: Vec<_> = state.sources.iter().map(PemSource::stamp).collect();
    if stamps == state.stamps {
        return;
    }
    match load(&state.sources, &provider(), true) {
        Ok(verifier) => {
            (state.verifier, state.stamps, state.generation) = (verifier, stamps, state.generation + 1);
            tracing::info!(sources = ?state.sources, "reloaded client CAs");
        }
        // Half-written files are likely: the stamps stay as they were, and the next check tries again.
        Err(error) => tracing::warn!(%error, "cannot reload client CAs"),
    }
}

fn provider() -> Arc<CryptoProvider> {
    // Named, so that nothing depends on the provider that another part of the process installed.
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Returns the verifier of some CAs.
pub(super) fn load(
    sources: &[PemSource],
    provider: &Arc<CryptoProvider>,
    allow_unauthenticated: bool,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let origin = |source: &PemSource| source.origin("client CA");
    let mut roots = RootCertStore::empty();
    for ca in sources {
        for certificate in ca.certificates("client CA")? {
            roots.add(certificate).map_err(|source| TlsError::Certificate { origin: origin(ca), source })?;
        }
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let builder = if allow_unauthenticated { builder.allow_unauthenticated() } else { builder };
    builder.build().map_err(|source| TlsError::ClientCa {
        origin: sources.iter().map(origin).collect::<Vec<_>>().join(", "),
        source,
    })
}

/// Returns the names of all CAs, by which clients choose a certificate.
pub(super) fn hints(verifiers: &[Arc<ClientVerifier>]) -> Vec<DistinguishedName> {
    verifiers.iter().flat_map(|verifier| verifier.current().0.root_hint_subjects().to_vec()).collect()
}
