//! Servers that this program starts: Orlop, and a kube-apiserver with its etcd. They end with the value.

use std::{
    ffi::OsStr,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};

use crate::{
    request::Request,
    server::{Answer, Server},
};

/// Deadline of a server's start.
const START: Duration = Duration::from_secs(60);
/// Interval in which a server that starts is asked.
const POLL: Duration = Duration::from_millis(50);
/// File with what the processes of a server write to their standard error.
const LOG: &str = "log";
/// Lines of it that are shown when one of them ends, the last first.
const LINES_SHOWN: usize = 10;

/// A server with the processes that it consists of.
#[derive(Debug)]
pub(crate) struct Own {
    processes: Vec<Process>,
    pub(crate) kubeconfig: PathBuf,
    folder: tempfile::TempDir,
}

/// A process that is killed when the value is dropped.
#[derive(Debug)]
struct Process(Child);

impl Process {
    fn start(
        program: &Path,
        log: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Self> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(fs::File::options().create(true).append(true).open(log)?);
        let started = command.spawn().with_context(|| format!("{} cannot be started", program.display()))?;
        Ok(Self(started))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Own {
    /// Starts `orlop serve --ephemeral`, and waits until it is ready.
    pub(crate) async fn orlop(program: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        // kube-apiserver has no controllers of workloads either.
        let arguments = ["serve", "--ephemeral", "--controllers=-*", "--kubeconfig"].map(OsStr::new);
        let process = Process::start(
            program,
            &folder.path().join(LOG),
            arguments.into_iter().chain([kubeconfig.as_os_str()]),
        )?;
        Self { processes: vec![process], kubeconfig, folder }.ready().await
    }

    /// Starts etcd and a kube-apiserver on loopback addresses, and waits until they are ready.
    pub(crate) async fn kube_apiserver(program: &Path, etcd: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = |name: &str| folder.path().join(name).display().to_string();
        let [client, peer, secure] = free_ports()?;
        let database = format!("http://127.0.0.1:{client}");
        let etcd = Process::start(
            etcd,
            &folder.path().join(LOG),
            [
                format!("--data-dir={}", file("etcd")),
                format!("--listen-client-urls={database}"),
                format!("--advertise-client-urls={database}"),
                format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
                "--unsafe-no-fsync".to_owned(),
            ],
        )?;
        administrator(folder.path())?;
        let key = KeyPair::generate()?;
        fs::write(file("sa.key"), key.serialize_pem())?;
        fs::write(file("sa.pub"), key.public_key_pem())?;
        let process = Process::start(
            program,
            &folder.path().join(LOG),
            [
                format!("--etcd-servers={database}"),
                format!("--cert-dir={}", file("certificates")),
                "--bind-address=127.0.0.1".to_owned(),
                format!("--secure-port={secure}"),
                format!("--client-ca-file={}", file("ca.crt")),
                "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
                format!("--service-account-key-file={}", file("sa.pub")),
                format!("--service-account-signing-key-file={}", file("sa.key")),
                // As Orlop is started: the defaults of both differ.
                "--authorization-mode=Node,RBAC".to_owned(),
                "--enable-admission-plugins=NodeRestriction".to_owned(),
                "--service-cluster-ip-range=10.0.0.0/16".to_owned(),
                "--allow-privileged=true".to_owned(),
            ],
        )?;
        let kubeconfig = folder.path().join("kubeconfig");
        let cluster = format!("{{server: \"https://127.0.0.1:{secure}\", insecure-skip-tls-verify: true}}");
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: c,\n\
             clusters: [{{name: c, cluster: {cluster}}}],\n\
             users: [{{name: u, user: {{client-certificate: admin.crt, client-key: admin.key}}}}],\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]}}\n"
        );
        fs::write(&kubeconfig, text)?;
        // The API server ends before its database.
        Self { processes: vec![process, etcd], kubeconfig, folder }.ready().await
    }

    async fn ready(mut self) -> Result<Self> {
        let until = Instant::now() + START;
        let ready = Request::new("start", "GET", "/readyz");
        loop {
            if let Ok(server) = Server::connect(&self.kubeconfig)
                && let Ok(Answer { code: 200, .. }) = server.send(&ready).await
            {
                return Ok(self);
            }
            for process in &mut self.processes {
                if let Some(status) = process.0.try_wait()? {
                    let log = fs::read_to_string(self.folder.path().join(LOG)).unwrap_or_default();
                    let last = log.lines().rev().take(LINES_SHOWN).collect::<Vec<_>>();
                    bail!("a server ended before it was ready: {status}\n{}", last.join("\n"));
                }
            }
            if Instant::now() > until {
                bail!("a server was not ready in time");
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Writes a CA, and the administrator's certificate, as Orlop has them.
fn administrator(folder: &Path) -> Result<()> {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(DnType::CommonName, "compare");
    let issuer = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    let mut administrator = CertificateParams::default();
    administrator.distinguished_name.push(DnType::OrganizationName, "system:masters");
    administrator.distinguished_name.push(DnType::CommonName, "kubernetes-admin");
    administrator.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate()?;
    let certificate = administrator.signed_by(&key, &issuer)?;
    fs::write(folder.join("ca.crt"), issuer.pem())?;
    fs::write(folder.join("admin.crt"), certificate.pem())?;
    fs::write(folder.join("admin.key"), key.serialize_pem())?;
    Ok(())
}

/// Returns ports that are free now.
fn free_ports() -> Result<[u16; 3]> {
    let listeners = [0; 3].map(|_| TcpListener::bind("127.0.0.1:0"));
    let mut ports = [0; 3];
    for (port, listener) in ports.iter_mut().zip(listeners) {
        *port = listener?.local_addr()?.port();
    }
    Ok(ports)
}
