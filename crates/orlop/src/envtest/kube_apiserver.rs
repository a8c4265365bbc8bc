//! kube-apiserver's flags as those of `orlop serve`. Most have the same name there; a flag that is unknown there as well
//! is an error that names it.

use std::{
    net::{IpAddr, SocketAddr},
    path::Path,
};

use anyhow::{Context, bail};
use orlop_server::storage::service_ranges::ServiceRanges;

use super::{flags::Flags, help_of, serving_pair, version};

pub(super) const NAME: &str = "kube-apiserver";

/// A range of node ports, where only the range of cluster IPs counts.
const NODE_PORTS: &str = "30000-32767";

/// Flags about what is not here: etcd as a database, the watch cache, klog, alpha features.
const WITHOUT_EFFECT: &[&str] = &[
    "alsologtostderr",
    "apiserver-count",
    "contention-profiling",
    "default-watch-cache-size",
    "delete-collection-workers",
    "enable-garbage-collector",
    "endpoint-reconciler-type",
    "etcd-cafile",
    "etcd-certfile",
    "etcd-compaction-interval",
    "etcd-count-metric-poll-period",
    "etcd-keyfile",
    "etcd-prefix",
    "feature-gates",
    "logging-format",
    "logtostderr",
    "profiling",
    "runtime-config",
    "stderrthreshold",
    "storage-backend",
    "storage-media-type",
    "v",
    "vmodule",
    "watch-cache",
    "watch-cache-sizes",
];

/// Returns the command line of `orlop serve` for one of kube-apiserver.
pub(super) fn translate(mut flags: Flags) -> anyhow::Result<Vec<String>> {
    if flags.take("etcd-servers").is_none_or(|servers| servers.is_empty()) {
        bail!("--etcd-servers must be specified");
    }
    if flags.take_bool("service-account-lookup")? == Some(false) {
        bail!(
            "--service-account-lookup=false is not supported: tokens are valid as long as their service account is"
        );
    }
    if flags.take_bool("allow-privileged")? == Some(false) {
        bail!("--allow-privileged=false is not supported: use PodSecurity admission");
    }
    let address = flags.take("bind-address").unwrap_or_else(|| "0.0.0.0".to_owned());
    let address: IpAddr = address.parse().with_context(|| format!("--bind-address {address:?}"))?;
    let port = flags.take("secure-port").unwrap_or_else(|| "6443".to_owned());
    let port: u16 = port.parse().with_context(|| format!("--secure-port {port:?}"))?;
    if port == 0 {
        bail!("--secure-port 0 must be between 1 and 65535, inclusive. It cannot be turned off with 0");
    }
    let mut own = vec!["serve".to_owned(), "--ephemeral".to_owned()];
    own.push(format!("--listen={}", SocketAddr::new(address, port)));
    if !flags.has("controllers") {
        own.push("--controllers=-*".to_owned());
    }
    if !flags.has(version::REPORTED) {
        own.push(format!("--{}={}", version::REPORTED, version::plain()));
    }
    if let Some(folder) = flags.take("cert-dir")
        && !flags.has("tls-cert-file")
    {
        let advertised = flags.get("advertise-address").map(str::to_owned);
        let advertised = advertised.map(|text| text.parse().context("--advertise-address")).transpose()?;
        let services =
            flags.get("service-cluster-ip-range").map(|range| ServiceRanges::parse(range, NODE_PORTS));
        let services = services.transpose()?.unwrap_or_default();
        let (certificate, key) =
            serving_pair::find_or_make(Path::new(&folder), advertised.unwrap_or(address), &services)?;
        own.push(format!("--tls-cert-file={}", certificate.display()));
        own.push(format!("--tls-private-key-file={}", key.display()));
    }
    flags.ignore(WITHOUT_EFFECT);
    own.extend(flags.into_arguments());
    Ok(own)
}

pub(super) fn help() -> String {
    let own = "\
The Kubernetes API server, by Orlop: kube-apiserver's flags for controller-runtime's envtest.

Flags:
      --allow-privileged  If true, allow privileged containers. False is not supported.
      --bind-address  Address to listen on [default: 0.0.0.0].
      --cert-dir  Folder of apiserver.crt and apiserver.key, which are made unless they are there.
      --etcd-servers  Required, as by kube-apiserver. Objects are kept in memory.
      --secure-port  Port to serve HTTPS on [default: 6443].
      --version  true or raw: print the version and quit. vX.Y.Z...: report this version.
";
    let ignored: String =
        WITHOUT_EFFECT.iter().map(|name| format!("      --{name}  Has no effect.\n")).collect();
    format!("{own}{ignored}{}", help_of("serve"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use clap::Parser;

    use super::*;

    fn translated(arguments: &[&str]) -> anyhow::Result<Vec<String>> {
        translate(Flags::parse(arguments.iter().map(Into::into))?)
    }

    /// The flags that controller-runtime 0.25 passes, but for --cert-dir.
    const ENVTEST: [&str; 11] = [
        "--allow-privileged=true",
        "--authorization-mode=RBAC",
        "--bind-address=127.0.0.1",
        "--client-ca-file=/nonexistent/client-cert-auth-ca.crt",
        "--disable-admission-plugins=ServiceAccount",
        "--etcd-servers=http://127.0.0.1:1",
        "--secure-port=2",
        "--service-account-issuer=https://127.0.0.1:2/",
        "--service-account-key-file=/nonexistent/sa-signer.crt",
        "--service-account-signing-key-file=/nonexistent/sa-signer.key",
        "--service-cluster-ip-range=10.0.0.0/24",
    ];

    #[test]
    fn flags_of_envtest_are_known() {
        let own = translated(&ENVTEST).unwrap();
        assert!(own.contains(&"--listen=127.0.0.1:2".to_owned()), "{own:?}");
        assert!(own.contains(&"--controllers=-*".to_owned()), "{own:?}");
        crate::Arguments::try_parse_from(std::iter::once("orlop".to_owned()).chain(own)).unwrap();
    }

    #[test]
    fn unknown_flag_is_named() {
        let own = translated(&[&ENVTEST[..], &["--no-such-flag=1"]].concat()).unwrap();
        let parsed = crate::Arguments::try_parse_from(std::iter::once("orlop".to_owned()).chain(own));
        assert!(parsed.unwrap_err().to_string().contains("--no-such-flag"));
    }

    #[test]
    fn invalid_values_are_refused() {
        for (flag, said) in [
            ("--secure-port=0", "cannot be turned off"),
            ("--secure-port=http", "--secure-port"),
            ("--bind-address=localhost", "--bind-address"),
            ("--allow-privileged=false", "not supported"),
        ] {
            let error = translated(&[&ENVTEST[..], &[flag]].concat()).unwrap_err();
            assert!(format!("{error:#}").contains(said), "{flag}: {error:#}");
        }
        assert!(translated(&[]).unwrap_err().to_string().contains("--etcd-servers must be specified"));
    }

    /// envtest passes --insecure-port to versions that have it.
    #[test]
    fn help_has_no_insecure_port() {
        assert!(help().contains("--service-cluster-ip-range"));
        assert!(!help().contains("--insecure-port"));
    }
}
