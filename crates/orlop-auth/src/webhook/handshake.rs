//! TLS errors of webhooks in the words of Go's client, which people search for.

use std::net::IpAddr;

use orlop_api::time::Time;
use rustls::{
    AlertDescription, CertificateError, Error, InvalidMessage,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use x509_parser::{parse_x509_certificate, public_key::PublicKey};

/// Returns the reason. `ca_bundle` is what the webhook's certificate was verified against.
pub(super) fn reason(error: &std::io::Error, ca_bundle: &[u8]) -> String {
    let Some(tls) = error.get_ref().and_then(|source| source.downcast_ref::<Error>()) else {
        return match error.kind() {
            std::io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
            _ => error.to_string(),
        };
    };
    match tls {
        Error::InvalidCertificate(why) => {
            format!("tls: failed to verify certificate: x509: {}", certificate(why, ca_bundle))
        }
        Error::AlertReceived(alert) => format!("remote error: tls: {}", alert_text(*alert)),
        // A plain HTTP server answers a handshake in plain text.
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "http: server gave HTTP response to HTTPS client".to_owned()
        }
        other => format!("tls: {other}"),
    }
}

fn certificate(why: &CertificateError, ca_bundle: &[u8]) -> String {
    const UNKNOWN: &str = "certificate signed by unknown authority";
    const OUTDATED: &str = "certificate has expired or is not yet valid";
    match why {
        CertificateError::UnknownIssuer => UNKNOWN.to_owned(),
        // A CA of the same name did not sign the certificate.
        CertificateError::BadSignature => match candidate(ca_bundle) {
            Some((name, why)) => format!(
                "{UNKNOWN} (possibly because of {why:?} while trying to verify candidate authority certificate {name:?})"
            ),
            None => UNKNOWN.to_owned(),
        },
        CertificateError::ExpiredContext { time, not_after } => {
            format!("{OUTDATED}: current time {} is after {}", date(*time), date(*not_after))
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            format!("{OUTDATED}: current time {} is before {}", date(*time), date(*not_before))
        }
        CertificateError::NotValidForNameContext { expected, presented } => wrong_name(expected, presented),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "certificate specifies an incompatible key usage".to_owned()
        }
        CertificateError::UnhandledCriticalExtension => "unhandled critical extension".to_owned(),
        CertificateError::BadEncoding => "malformed certificate".to_owned(),
        other => other.to_string(),
    }
}

/// Returns the name of the first CA, and Go's error for a signature that is not its own.
fn candidate(ca_bundle: &[u8]) -> Option<(String, &'static str)> {
    let certificate = CertificateDer::pem_slice_iter(ca_bundle).next()?.ok()?;
    let (_, parsed) = parse_x509_certificate(&certificate).ok()?;
    let subject = parsed.subject();
    let named = subject.iter_common_name().chain(subject.iter_organization()).next();
    let name = named.and_then(|name| name.as_str().ok()).map(str::to_owned);
    let name = name.unwrap_or_else(|| format!("serial:{}", parsed.serial));
    let why = match parsed.public_key().parsed() {
        Ok(PublicKey::RSA(_)) => "crypto/rsa: verification error",
        Ok(PublicKey::EC(_)) => "x509: ECDSA verification failure",
        _ => "x509: Ed25519 verification failure",
    };
    Some((name, why))
}

/// rustls presents names as `DnsName("a")` and `IpAddress(1.2.3.4)`.
fn wrong_name(expected: &ServerName<'_>, presented: &[String]) -> String {
    let expected = expected.to_str();
    let kind = if expected.parse::<IpAddr>().is_ok() { "IpAddress(" } else { "DnsName(\"" };
    let named = presented.iter().filter_map(|name| name.strip_prefix(kind));
    let names: Vec<&str> = named.map(|name| name.trim_end_matches(['"', ')'])).collect();
    match (names.is_empty(), kind) {
        (true, "IpAddress(") => {
            format!("cannot validate certificate for {expected} because it doesn't contain any IP SANs")
        }
        (true, _) => format!("certificate is not valid for any names, but wanted to match {expected}"),
        (false, _) => format!("certificate is valid for {}, not {expected}", names.join(", ")),
    }
}

fn date(time: UnixTime) -> Time {
    Time::from_unix(time.as_secs() as i64)
}

fn alert_text(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::HandshakeFailure => "handshake failure".to_owned(),
        AlertDescription::BadCertificate => "bad certificate".to_owned(),
        AlertDescription::CertificateRequired => "certificate required".to_owned(),
        AlertDescription::ProtocolVersion => "protocol version not supported".to_owned(),
        AlertDescription::UnrecognisedName => "unrecognized name".to_owned(),
        AlertDescription::InternalError => "internal error".to_owned(),
        other => format!("{other:?}"),
    }
}
