//! The serving certificate in `--cert-dir`. kube-apiserver makes one there unless it finds a pair or is given another.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use orlop_server::{
    auth::pki::{Authority, write_secret},
    storage::service_ranges::ServiceRanges,
};

const NAMES: [&str; 4] = ["kubernetes.default.svc", "kubernetes.default", "kubernetes", "localhost"];

/// Returns the files of the certificate and its key. Without either both are made: a certificate for `address` and the API
/// server's Service, followed by that of a CA whose key is thrown away.
pub(super) fn find_or_make(
    folder: &Path,
    address: IpAddr,
    services: &ServiceRanges,
) -> anyhow::Result<(PathBuf, PathBuf)> {
    let (certificate, key) = (folder.join("apiserver.crt"), folder.join("apiserver.key"));
    match (certificate.exists(), key.exists()) {
        (true, true) => return Ok((certificate, key)),
        (false, false) => {}
        (is_there, _) => {
            let (present, absent) = if is_there { (&certificate, &key) } else { (&key, &certificate) };
            bail!("{} is there without {}: remove it, or add the other", present.display(), absent.display());
        }
    }
    let address = if address.is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { address };
    let addresses = [address, services.api_server()];
    let authority = Authority::generate()?;
    let pair = authority.server(&NAMES.map(str::to_owned), &addresses)?;
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let chain = format!("{}{}", pair.certificate, authority.credential().certificate);
    write_secret(&key, pair.key.as_bytes())?;
    fs::write(&certificate, chain).with_context(|| certificate.display().to_string())?;
    Ok((certificate, key))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn pair_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("certificates");
        let services = ServiceRanges::default();
        let make = || find_or_make(&folder, Ipv4Addr::UNSPECIFIED.into(), &services).unwrap();
        let (certificate, key) = make();
        let first = fs::read_to_string(&certificate).unwrap();
        assert_eq!(first.matches("BEGIN CERTIFICATE").count(), 2, "the certificate and its CA's");
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        make();
        assert_eq!(fs::read_to_string(&certificate).unwrap(), first);
        fs::remove_file(&key).unwrap();
        let error = find_or_make(&folder, Ipv4Addr::LOCALHOST.into(), &services).unwrap_err();
        assert!(error.to_string().contains("apiserver.key"), "{error}");
    }
}
