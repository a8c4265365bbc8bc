//! A certificate authority for one cluster, a server certificate and a client certificate under it.

use std::{path::Path, process::Command};

use crate::shell::run;

/// Creates `ca.crt`, `server.{crt,key}` (for `localhost` and the loopback addresses) and `client.{crt,key}`
/// (for the role `role`) in `folder`.
pub(crate) fn make(folder: &Path, role: &str) -> Result<(), String> {
    let openssl = |arguments: &[&str]| {
        run(Command::new("openssl").current_dir(folder).args(arguments))
            .map_err(|error| format!("TLS for tests needs openssl: {error}"))
    };
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
    let authority = ["req", "-x509", "-subj", "/CN=orlop test authority", "-keyout", "ca.key"];
    let as_authority = ["-addext", "keyUsage=critical,keyCertSign", "-out", "ca.crt"];
    openssl(&[&authority[..], &key, &as_authority].concat())?;
    let names = "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1";
    for (name, subject, extra) in [
        ("server", "/CN=localhost".to_owned(), names),
        ("client", format!("/CN={role}"), "extendedKeyUsage=clientAuth"),
    ] {
        let (key_file, certificate) = (format!("{name}.key"), format!("{name}.crt"));
        let signed = ["req", "-x509", "-CA", "ca.crt", "-CAkey", "ca.key", "-subj", &subject];
        let leaf = ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", extra];
        let out = ["-keyout", &key_file, "-out", &certificate];
        openssl(&[&signed[..], &key, &leaf, &out].concat())?;
    }
    Ok(())
}
