//! etcd's flags as those of `orlop etcd`. A flag that is unknown there as well is an error that names it.

use anyhow::{Context, bail};

use super::{flags::Flags, help_of};

pub(super) const NAME: &str = "etcd";

/// Flags about what is not here: peers, snapshots, etcd's logger.
const WITHOUT_EFFECT: &[&str] = &[
    "initial-advertise-peer-urls",
    "initial-cluster",
    "initial-cluster-state",
    "initial-cluster-token",
    "listen-peer-urls",
    "log-level",
    "log-outputs",
    "logger",
    "snapshot-count",
];

/// Flags that have another name.
const RENAMED: &[(&str, &str)] = &[("cert-file", "server-cert-file"), ("key-file", "server-key-file")];

/// Returns the command line of `orlop etcd` for one of etcd.
pub(super) fn translate(mut flags: Flags) -> anyhow::Result<Vec<String>> {
    let mut own = vec!["etcd".to_owned()];
    if let Some(urls) = flags.take("listen-client-urls") {
        if urls.contains(',') {
            bail!("--listen-client-urls {urls:?}: one URL is supported");
        }
        let (_, address) =
            urls.split_once("://").with_context(|| format!("--listen-client-urls {urls:?}"))?;
        own.push(format!("--listen-address={}", address.trim_end_matches('/')));
    }
    let folder = flags.take("data-dir").unwrap_or_else(|| "default.etcd".to_owned());
    std::fs::create_dir_all(&folder).with_context(|| format!("--data-dir {folder:?}"))?;
    own.push(format!("--endpoint=sqlite://{folder}/orlop.db"));
    if flags.take_bool("unsafe-no-fsync")? == Some(true) {
        own.push("--relaxed-durability".to_owned());
    }
    if flags.take_bool("client-cert-auth")? == Some(true) && !flags.has("trusted-ca-file") {
        bail!("--client-cert-auth needs --trusted-ca-file");
    }
    for (from, to) in RENAMED {
        flags.rename(from, to);
    }
    flags.ignore(WITHOUT_EFFECT);
    own.extend(flags.into_arguments());
    Ok(own)
}

pub(super) fn version() -> String {
    "etcd Version: 3.6.11".to_owned()
}

pub(super) fn help() -> String {
    let own = "\
etcd, by Orlop: etcd's flags for controller-runtime's envtest.

Flags:
      --cert-file  Serving certificate (PEM).
      --client-cert-auth  Require client certificates of --trusted-ca-file.
      --data-dir  Folder of the database [default: default.etcd].
      --key-file  Private key (PEM) of the serving certificate.
      --listen-client-urls  URL to listen on for clients.
      --unsafe-no-fsync  Do not wait for the disk.
";
    let ignored: String =
        WITHOUT_EFFECT.iter().map(|name| format!("      --{name}  Has no effect.\n")).collect();
    format!("{own}{ignored}{}", help_of("etcd"))
}
