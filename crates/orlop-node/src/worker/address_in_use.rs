//! Tells why a container fails whose address is in use: pods that share the machine's network take ports from each other,
//! and a program's own message does not say from whom.

use std::{
    collections::{BTreeSet, HashMap},
    net::SocketAddr,
    path::Path,
};

use k8s_openapi::api::core::v1::{Container, Pod};

use super::Worker;
use crate::{
    context::Node,
    events::Severity,
    listeners::{self, Listener},
    logs,
    shim::processes,
};

/// Lines of a log that are looked at.
const LINES: u64 = 40;
/// Bytes of a program's own words that are repeated.
const QUOTED_BYTES_MAX: usize = 200;
/// Owners that are named, and places of one.
const NAMED_MAX: usize = 4;

impl Worker {
    /// Records an event if a container that ended, or that nobody reaches, could not have its address. Nobody waits for it: processes are searched.
    pub(super) fn report_address_in_use(&self, index: usize) {
        if self.node.networks.is_some() && !self.is_host_network() {
            return;
        }
        let spec = self.members[index].spec.clone();
        let path = self.members[index].field_path();
        let log = self.log_path(index, self.members[index].state.restart_count);
        let (node, pod) = (self.node.clone(), self.pod.clone());
        tokio::task::spawn_blocking(move || {
            let Some(message) = explain(&node, &pod, &spec, &log) else { return };
            node.events.pod(&pod, Some(path), Severity::Warning, "AddressInUse", message);
        });
    }
}

/// Returns the reason why a container fails, if its log says that an address was in use.
fn explain(node: &Node, pod: &Pod, spec: &Container, log: &Path) -> Option<String> {
    let tail = String::from_utf8_lossy(&logs::tail(log, LINES).ok()?).into_owned();
    let said = complaint(&tail)?;
    let ports = ports(said, spec);
    let listeners: Vec<Listener> =
        listeners::all().into_iter().filter(|found| ports.contains(&found.address.port())).collect();
    let mut owners: Vec<String> =
        owners(node).iter().filter_map(|(owner, sockets)| describe(owner, sockets, &listeners)).collect();
    owners.sort();
    let listening = match owners.is_empty() {
        true => String::new(),
        false => format!(" Listening now: {}.", join(owners, "; ")),
    };
    let remedy = match pod.spec.as_ref().and_then(|spec| spec.host_network) {
        Some(true) => "Choose another port, or leave hostNetwork out",
        _ => {
            "Let the program listen on $POD_IP instead of all addresses, or run the node with --pod-network own (as root)"
        }
    };
    Some(format!(
        "The address of container {} is in use ({}). Pods of this node share the machine's network.{listening} {remedy}",
        spec.name,
        cut(said)
    ))
}

/// Returns the line in which a program says that its address is in use: in the words of the C library's, of Go, Java, Node.js
/// and of musl, or as Spring does.
fn complaint(log: &str) -> Option<&str> {
    log.lines().rev().map(str::trim).find(|line| {
        let line = line.to_ascii_lowercase();
        let says = |words: &[&str]| words.iter().all(|word| line.contains(word));
        says(&["address already in use"])
            || says(&["address in use"])
            || says(&["eaddrinuse"])
            || says(&["addrinuse"])
            || says(&["port", "already in use"])
    })
}

/// Returns the ports that a container may have wanted: numbers in its words and arguments, and those it declares.
fn ports(said: &str, spec: &Container) -> BTreeSet<u16> {
    let numbers = |text: &str| -> Vec<u16> {
        text.split(|letter: char| !letter.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
    };
    let declared = spec.ports.iter().flatten().filter_map(|port| u16::try_from(port.container_port).ok());
    let arguments = spec.command.iter().chain(&spec.args).flatten();
    let variables = spec.env.iter().flatten().filter_map(|variable| variable.value.as_ref());
    let named = std::iter::once(said).chain(arguments.chain(variables).map(String::as_str));
    declared.chain(named.flat_map(numbers)).filter(|port| *port > 0).collect()
}

/// Returns the sockets of pods and of the node, by their owner.
fn owners(node: &Node) -> HashMap<String, Vec<u64>> {
    let mut found: HashMap<String, Vec<u64>> = HashMap::new();
    for entry in node.directory.all() {
        let metadata = &entry.pod.metadata;
        let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
        let owner = format!("pod {}/{}", namespace.unwrap_or_default(), name.unwrap_or_default());
        for live in entry.containers.values().filter_map(|runs| runs.live.as_ref()) {
            let pids = processes::descendants(live.monitor_pid());
            let sockets = pids.into_iter().filter_map(|pid| u32::try_from(pid).ok());
            found.entry(owner.clone()).or_default().extend(sockets.flat_map(listeners::of_process));
        }
    }
    let own = listeners::of_process(std::process::id());
    found.insert("this node, for a Service or a port of its own".to_owned(), own.into_iter().collect());
    found
}

/// Returns where an owner of sockets listens; `None` if nowhere.
fn describe(owner: &str, sockets: &[u64], listeners: &[Listener]) -> Option<String> {
    let found: BTreeSet<SocketAddr> =
        listeners.iter().filter(|found| sockets.contains(&found.inode)).map(|found| found.address).collect();
    let places: Vec<String> = found
        .iter()
        .map(|address| match address.ip().is_unspecified() {
            true => format!("on all addresses at port {}", address.port()),
            false => format!("on {address}"),
        })
        .collect();
    (!places.is_empty()).then(|| format!("{owner} {}", join(places, ", ")))
}

/// Joins the first of a list, and the number of the others.
fn join(mut all: Vec<String>, separator: &str) -> String {
    let more = all.len().saturating_sub(NAMED_MAX);
    all.truncate(NAMED_MAX);
    if more > 0 {
        all.push(format!("{more} more"));
    }
    all.join(separator)
}

fn cut(text: &str) -> &str {
    let end = (0..=QUOTED_BYTES_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn programs_say_that_an_address_is_in_use_in_their_own_words() {
        for line in [
            "OSError: [Errno 98] Address already in use",
            "listen tcp :8080: bind: address already in use",
            "Error: listen EADDRINUSE: address already in use :::8080",
            "bind: Address in use",
            "Os { code: 98, kind: AddrInUse, message: \"Address already in use\" }",
            "Web server failed to start. Port 8080 was already in use.",
        ] {
            assert_eq!(complaint(&format!("started\n  {line}\nbye\n")), Some(line));
        }
        assert_eq!(complaint("name already in use\nport 8080 refused\n"), None);
    }

    #[test]
    fn ports_are_those_that_are_said_and_declared() {
        let spec: Container = serde_json::from_value(json!({
            "name": "c", "command": ["server", "--port=8081", "99999"], "args": ["[::]:8082"],
            "env": [{"name": "PORT", "value": "8083"}], "ports": [{"containerPort": 8084}],
        }))
        .unwrap();
        let found = ports("listen tcp :8080: bind", &spec);
        assert_eq!(found, BTreeSet::from([8080, 8081, 8082, 8083, 8084]));
    }

    #[test]
    fn places_of_an_owner_are_listed() {
        let listener = |address: &str, inode| Listener { address: address.parse().unwrap(), inode };
        let all = [listener("0.0.0.0:80", 1), listener("[::]:80", 2), listener("127.64.0.2:81", 3)];
        let said = describe("pod a/b", &[1, 3], &all).unwrap();
        assert_eq!(said, "pod a/b on all addresses at port 80, on 127.64.0.2:81");
        assert_eq!(describe("pod a/b", &[7], &all), None);
        let many = ["a", "b", "c", "d", "e", "f"].map(str::to_owned).to_vec();
        assert_eq!(join(many, ", "), "a, b, c, d, 2 more");
        assert_eq!(cut(&"ü".repeat(150)).len(), QUOTED_BYTES_MAX);
    }
}
