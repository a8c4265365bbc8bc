//! Verification of client certificates by CAs that may be in files.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use rustls::{
    CertificateError, DistinguishedName, RootCertStore,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, UnixTime},
    server::{VerifierBuilderError, WebPkiClientVerifier, danger::ClientCertVerifier},
};

use super::{PemSource, RELOAD_INTERVAL, Stamp, TlsError};

/// Verifies that one of some CAs has issued a certificate for client authentication. Files with CAs are followed. A CA that
/// has expired vouches for nothing, as in Go.
#[derive(Debug)]
pub struct ClientVerifier {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    sources: Vec<PemSource>,
    /// Verifies by all CAs.
    verifier: Arc<dyn ClientCertVerifier>,
    cas: Vec<Ca>,
    valid: Valid,
    stamps: Vec<Option<Stamp>>,
    checked: Instant,
    generation: u64,
}

/// A CA, and the first and the last second of its life.
#[derive(Debug)]
struct Ca {
    certificate: CertificateDer<'static>,
    from: i64,
    to: i64,
}

/// A verifier by the CAs that are valid between two seconds; `None` if there is none.
#[derive(Clone, Debug)]
struct Valid {
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    from: i64,
    to: i64,
}

impl Valid {
    fn at(cas: &[Ca], now: i64) -> Self {
        let (mut from, mut to, mut valid) = (i64::MIN, i64::MAX, Vec::new());
        for ca in cas {
            if now < ca.from {
                to = to.min(ca.from - 1);
            } else if now > ca.to {
                from = from.max(ca.to + 1);
            } else {
                (from, to) = (from.max(ca.from), to.min(ca.to));
                valid.push(ca.certificate.clone());
            }
        }
        // All of them were loaded before.
        Self { verifier: verifier_of(valid, &provider(), true).ok(), from, to }
    }
}

impl ClientVerifier {
    /// Loads CAs from all sources.
    pub fn new(sources: Vec<PemSource>) -> Result<Self, TlsError> {
        // Taken before the files are read: a change in between is noticed by the next check.
        let stamps = sources.iter().map(PemSource::stamp).collect();
        let verifier = load(&sources, &provider(), true)?;
        let cas = cas(&sources)?;
        let valid = Valid::at(&cas, seconds(UnixTime::now()));
        let state = State { sources, verifier, cas, valid, stamps, checked: Instant::now(), generation: 0 };
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
        let valid = self.valid_at(seconds(now));
        let expired = rustls::Error::InvalidCertificate(CertificateError::Expired);
        valid.ok_or(expired)?.verify_client_cert(first, intermediates, now).map(drop)
    }

    /// Returns a verifier by the CAs that are valid at a time.
    fn valid_at(&self, now: i64) -> Option<Arc<dyn ClientCertVerifier>> {
        self.current();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !(state.valid.from..=state.valid.to).contains(&now) {
            state.valid = Valid::at(&state.cas, now);
        }
        state.valid.verifier.clone()
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
    let loaded =
        load(&state.sources, &provider(), true).and_then(|verifier| Ok((verifier, cas(&state.sources)?)));
    match loaded {
        Ok((verifier, cas)) => {
            state.valid = Valid::at(&cas, seconds(UnixTime::now()));
            (state.verifier, state.cas) = (verifier, cas);
            (state.stamps, state.generation) = (stamps, state.generation + 1);
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

fn seconds(time: UnixTime) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

/// Returns the CAs in some sources.
fn cas(sources: &[PemSource]) -> Result<Vec<Ca>, TlsError> {
    let mut all = Vec::new();
    for source in sources {
        for certificate in source.certificates("client CA")? {
            let invalid = |reason: String| TlsError::Pem { origin: source.origin("client CA"), reason };
            let parsed = x509_parser::parse_x509_certificate(&certificate);
            let (_, parsed) = parsed.map_err(|error| invalid(error.to_string()))?;
            let validity = parsed.validity();
            let (from, to) = (validity.not_before.timestamp(), validity.not_after.timestamp());
            all.push(Ca { certificate, from, to });
        }
    }
    Ok(all)
}

/// Returns the verifier of some CAs.
pub(super) fn load(
    sources: &[PemSource],
    provider: &Arc<CryptoProvider>,
    allow_unauthenticated: bool,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let origin = |source: &PemSource| source.origin("client CA");
    let mut all = Vec::new();
    for ca in sources {
        let certificates = ca.certificates("client CA")?;
        for certificate in &certificates {
            let added = RootCertStore::empty().add(certificate.clone());
            added.map_err(|source| TlsError::Certificate { origin: origin(ca), source })?;
        }
        all.extend(certificates);
    }
    verifier_of(all, provider, allow_unauthenticated).map_err(|source| TlsError::ClientCa {
        origin: sources.iter().map(origin).collect::<Vec<_>>().join(", "),
        source,
    })
}

fn verifier_of(
    cas: Vec<CertificateDer<'static>>,
    provider: &Arc<CryptoProvider>,
    allow_unauthenticated: bool,
) -> Result<Arc<dyn ClientCertVerifier>, VerifierBuilderError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(cas);
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let builder = if allow_unauthenticated { builder.allow_unauthenticated() } else { builder };
    builder.build()
}

/// Returns the names of all CAs, by which clients choose a certificate.
pub(super) fn hints(verifiers: &[Arc<ClientVerifier>]) -> Vec<DistinguishedName> {
    verifiers.iter().flat_map(|verifier| verifier.current().0.root_hint_subjects().to_vec()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::time::Duration;

    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    };

    use super::*;

    type Issuer = CertifiedIssuer<'static, KeyPair>;

    fn ca(to_year: i32) -> Issuer {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_after = rcgen::date_time_ymd(to_year, 1, 1);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    fn client(ca: &Issuer) -> [CertificateDer<'static>; 1] {
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        [params.signed_by(&KeyPair::generate().unwrap(), ca).unwrap().der().clone()]
    }

    #[test]
    fn expired_ca_vouches_for_nothing() {
        let (short, long) = (ca(2050), ca(2200));
        let sources = [&short, &long].map(|ca| PemSource::Inline(ca.pem())).to_vec();
        let verifier = ClientVerifier::new(sources).unwrap();
        let of = |year: u64| UnixTime::since_unix_epoch(Duration::from_secs((year - 1970) * 31_556_952));
        let (first, second) = (client(&short), client(&long));
        // Also backwards: clocks are set.
        for year in [2040, 2060, 2300, 2040] {
            assert_eq!(verifier.verify(&first, of(year)).is_ok(), year < 2050, "{year}");
            assert_eq!(verifier.verify(&second, of(year)).is_ok(), year < 2200, "{year}");
        }
    }
}
