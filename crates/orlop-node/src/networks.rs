//! Networks of pods: a network namespace each, so that a program that listens on all addresses takes its port from nobody.
//!
//! A pod's namespace has a pair of virtual devices to the machine's. The pod's address, one of 127.0.0.0/8, is on its end;
//! the machine routes that address there, past its own loopback device, which has the rest. Inside, 127.0.0.0/16 is the
//! pod's own, and everything else of 127.0.0.0/8 goes to the machine: other pods, services, its DNS. Addresses
//! beyond that are not reached. It takes root and iproute2's `ip`.

use std::{
    fs, io,
    io::Write,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::{fd::AsFd, unix::process::CommandExt},
    path::{Path, PathBuf},
    process::{ChildStdin, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sha2::{Digest, Sha256};

/// Folder of named network namespaces, as of iproute2.
const NAMES: &str = "/run/netns";
const PREFIX: &str = "orlop-";
/// First argument of this program when it is to remove the networks of a node that has ended.
pub(crate) const REMOVER: &str = "pod-network-remover";
/// Addresses of the two ends. No third device is on a link, so that all links have the same.
const MACHINE_END: &str = "02:00:00:00:00:01";
const POD_END: &str = "02:00:00:00:00:02";
/// Device of a pod in its namespace.
const DEVICE: &str = "eth0";

/// Networks of a node's pods.
#[derive(Clone, Debug)]
pub(crate) struct Networks {
    /// Beginning of the names of this node's namespaces.
    prefix: String,
    /// Address of the machine for pods.
    machine: Ipv4Addr,
    /// Closed with this process, which ends the remover.
    _remover: Option<Arc<ChildStdin>>,
}

impl Networks {
    /// Returns the networks of a node, and removes those that dead nodes of tests left. `program` removes those of a node
    /// of a test. `Err` has the reason why there are none.
    pub(crate) fn new(
        program: &Path,
        data_dir: &Path,
        is_ephemeral: bool,
        machine: Ipv4Addr,
    ) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("networks of pods need root".to_owned());
        }
        ip(&["-Version"], "").map_err(|error| format!("networks of pods need the program ip: {error}"))?;
        let owner = match is_ephemeral {
            true => format!("e{}", std::process::id()),
            // Of the folder, so that a node finds its own again after a restart.
            false => {
                let digest = Sha256::digest(data_dir.as_os_str().as_encoded_bytes());
                digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
            }
        };
        remove_stale();
        let prefix = format!("{PREFIX}{owner}-");
        let remover = match is_ephemeral {
            true => Some(start_remover(program, &prefix).map_err(|error| error.to_string())?),
            false => None,
        };
        Ok(Self { prefix, machine, _remover: remover.map(Arc::new) })
    }

    /// Returns the namespace of a pod's address.
    pub(crate) fn path(&self, address: Ipv4Addr) -> PathBuf {
        Path::new(NAMES).join(self.name(address))
    }

    fn name(&self, address: Ipv4Addr) -> String {
        format!("{}{address}", self.prefix)
    }

    /// Creates the network of a pod with kernel parameters, by file, if it is not there.
    pub(crate) async fn create(&self, address: Ipv4Addr, sysctls: Vec<(String, String)>) -> io::Result<()> {
        if self.path(address).exists() {
            return Ok(());
        }
        let networks = self.clone();
        blocking(move || networks.set_up(address, &sysctls).inspect_err(|_| networks.tear_down(address)))
            .await
    }

    /// Removes the network of a pod.
    pub(crate) async fn remove(&self, address: Ipv4Addr) {
        if self.path(address).exists() {
            let networks = self.clone();
            let _ = blocking(move || {
                networks.tear_down(address);
                Ok(())
            })
            .await;
        }
    }

    /// Connects to a port of a pod's own loopback address.
    pub(crate) async fn connect(
        &self,
        address: Ipv4Addr,
        port: u16,
        limit: Duration,
    ) -> io::Result<TcpStream> {
        let path = self.path(address);
        let target = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        blocking(move || inside(&path, || TcpStream::connect_timeout(&target, limit))).await
    }

    fn set_up(&self, address: Ipv4Addr, sysctls: &[(String, String)]) -> io::Result<()> {
        let (name, device, machine) = (self.name(address), device(address), self.machine);
        // Left by another node that had the address.
        let _ = ip(&["link", "delete", &device], "");
        ip(&["netns", "add", &name], "")?;
        ip(
            &["-batch", "-"],
            &format!(
                "link add {device} address {MACHINE_END} type veth peer name {DEVICE} address {POD_END} netns {name}\n"
            ),
        )?;
        for setting in ["route_localnet", "forwarding"] {
            fs::write(format!("/proc/sys/net/ipv4/conf/{device}/{setting}"), "1")?;
        }
        ip(
            &["-batch", "-"],
            &format!(
                "link set {device} up\n\
                 neigh replace {address} lladdr {POD_END} dev {device} nud permanent\n\
                 route replace {address}/32 dev {device} src {machine} table local\n"
            ),
        )?;
        inside(&self.path(address), || {
            fs::write(format!("/proc/sys/net/ipv4/conf/{DEVICE}/route_localnet"), "1")?;
            // As container runtimes have it: no program of a pod needs root for its port.
            let _ = fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
            for (path, value) in sysctls {
                fs::write(path, value).map_err(|error| io::Error::other(format!("{path}: {error}")))?;
            }
            ip(
                &["-batch", "-"],
                &format!(
                    "link set lo up\n\
                     addr del 127.0.0.1/8 dev lo\n\
                     addr add 127.0.0.1/16 dev lo\n\
                     link set {DEVICE} up\n\
                     addr add {address}/32 dev {DEVICE}\n\
                     neigh replace {machine} lladdr {MACHINE_END} dev {DEVICE} nud permanent\n\
                     route add {machine}/32 dev {DEVICE} scope link src {address}\n\
                     route add 127.0.0.0/8 via {machine} dev {DEVICE} src {address}\n"
                ),
            )
        })
    }

    fn tear_down(&self, address: Ipv4Addr) {
        // The device at once: a process that lingers would keep it, and the address is used again.
        let _ = ip(&["link", "delete", &device(address)], "");
        let _ = ip(&["netns", "delete", &self.name(address)], "");
    }
}

/// Returns the name of the machine's end of a link.
fn device(address: Ipv4Addr) -> String {
    format!("orl{:08x}", u32::from(address))
}

/// Starts a process that removes networks once this one has ended, however it does.
fn start_remover(program: &Path, prefix: &str) -> io::Result<ChildStdin> {
    let mut child = Command::new(program)
        .args([REMOVER, prefix])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    child.stdin.take().ok_or_else(|| io::Error::other("no input"))
}

/// Removes networks by the beginning of their names once standard input has ended.
pub(crate) fn remove_at_end(prefix: &str) -> io::Result<()> {
    io::copy(&mut io::stdin(), &mut io::sink())?;
    for name in names().filter(|name| name.starts_with(prefix)) {
        let _ = ip(&["netns", "delete", &name], "");
    }
    Ok(())
}

/// Returns the names of network namespaces.
fn names() -> impl Iterator<Item = String> {
    let entries = fs::read_dir(NAMES).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

/// Removes the networks of nodes of tests that were killed with their remover.
fn remove_stale() {
    for name in names() {
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
        let process = owner.and_then(|(owner, _)| owner.strip_prefix('e')?.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists()) {
            let _ = ip(&["netns", "delete", &name], "");
        }
    }
}

/// Runs iproute2's `ip`.
fn ip(arguments: &[&str], input: &str) -> io::Result<()> {
    let mut child = Command::new("ip")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("ip: {}", String::from_utf8_lossy(&output.stderr).trim())))
}

/// Runs a function on a thread of its own, which may change its namespaces.
async fn blocking<T: Send + 'static>(run: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    let (done, result) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name("pod-network".to_owned()).spawn(move || done.send(run()))?;
    result.await.unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
}

/// Moves this thread into a namespace for good, and runs a function there.
fn inside<T>(namespace: &Path, run: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    enter(namespace)?;
    run()
}

/// Moves this thread into a network namespace.
pub(crate) fn enter(namespace: &Path) -> io::Result<()> {
    let file = fs::File::open(namespace)?;
    Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_devices_fit() {
        assert_eq!(device(Ipv4Addr::new(127, 64, 0, 5)), "orl7f400005");
        assert!(device(Ipv4Addr::BROADCAST).len() < 16);
    }
}
