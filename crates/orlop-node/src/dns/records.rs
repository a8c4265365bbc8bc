//! Records of services and their endpoints, by Kubernetes' specification of DNS-based service discovery.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use orlop_client::ResourceExt;

use super::message::{Answer, Code, Data, Record, kind};
use crate::services::is_of;

/// Version of the specification.
const SCHEMA_VERSION: &str = "1.1.0";

/// Services and endpoints to answer from.
pub(super) struct View<'a> {
    /// Domain of the cluster.
    pub(super) zone: &'a str,
    pub(super) services: &'a [Arc<Service>],
    pub(super) slices: &'a [Arc<EndpointSlice>],
}

/// An endpoint of a service, with its name.
struct Endpoint {
    name: String,
    address: Ipv4Addr,
    /// Name, protocol and number of its ports.
    ports: Vec<(String, String, u16)>,
}

impl View<'_> {
    /// Answers a question about the cluster. `None` for names that are not its own.
    pub(super) fn answer(&self, name: &str, wanted: u16) -> Option<Answer> {
        if let Some(reverse) = name.strip_suffix(".in-addr.arpa") {
            return self.reverse(name, reverse);
        }
        let inner = match name.strip_suffix(self.zone) {
            Some("") => return Some(success(Vec::new())),
            Some(inner) => inner.strip_suffix('.')?,
            None => return None,
        };
        let labels: Vec<&str> = inner.split('.').collect();
        let found = match labels.as_slice() {
            ["dns-version"] => Some(vec![record(name, Data::Txt(SCHEMA_VERSION.to_owned()))]),
            // Names above services exist, and have nothing.
            ["svc" | "pod"] => Some(Vec::new()),
            [namespace, "svc" | "pod"] => self.has_namespace(namespace).then(Vec::new),
            [address, namespace, "pod"] => {
                let address = dashed(address).filter(|_| self.has_namespace(namespace));
                address.map(|address| vec![record(name, Data::A(address))])
            }
            [port, protocol, service, namespace, "svc"]
                if port.starts_with('_') && protocol.starts_with('_') =>
            {
                let Some(found) = self.service(namespace, service) else { return Some(no_name()) };
                return Some(self.ports(name, &found, &port[1..], &protocol[1..], wanted));
            }
            [service, namespace, "svc"] => {
                self.service(namespace, service).map(|service| self.addresses(name, &service))
            }
            [endpoint, service, namespace, "svc"] => {
                let found = self.service(namespace, service).map(|service| self.endpoints(&service));
                let found: Vec<Record> = found
                    .into_iter()
                    .flatten()
                    .filter(|found| found.name == *endpoint)
                    .map(|found| record(name, Data::A(found.address)))
                    .collect();
                (!found.is_empty()).then_some(found)
            }
            _ => None,
        };
        let Some(found) = found else { return Some(no_name()) };
        let is_wanted = |record: &Record| match record.data {
            Data::A(_) => matches!(wanted, kind::A | kind::ANY),
            // A name that stands for another does so for every type.
            Data::Cname(_) => true,
            Data::Txt(_) => matches!(wanted, kind::TXT | kind::ANY),
            Data::Ptr(_) | Data::Srv { .. } => matches!(wanted, kind::ANY),
        };
        Some(success(found.into_iter().filter(is_wanted).collect()))
    }

    fn has_namespace(&self, namespace: &str) -> bool {
        self.services.iter().any(|service| service.namespace().as_deref() == Some(namespace))
    }

    fn service(&self, namespace: &str, name: &str) -> Option<Arc<Service>> {
        let mut all = self.services.iter();
        all.find(|service| service.namespace().as_deref() == Some(namespace) && service.name_any() == name)
            .cloned()
    }

    /// Returns the records of a service's own name.
    fn addresses(&self, name: &str, service: &Service) -> Vec<Record> {
        let spec = service.spec.clone().unwrap_or_default();
        if spec.type_.as_deref() == Some("ExternalName") {
            let target = spec.external_name.unwrap_or_default();
            return vec![record(name, Data::Cname(target.trim_end_matches('.').to_owned()))];
        }
        if let Some(address) = cluster_ip(service) {
            return vec![record(name, Data::A(address))];
        }
        let addresses: BTreeSet<Ipv4Addr> =
            self.endpoints(service).into_iter().map(|endpoint| endpoint.address).collect();
        addresses.into_iter().map(|address| record(name, Data::A(address))).collect()
    }

    /// Returns the answer to a question for a port of a service.
    fn ports(&self, name: &str, service: &Service, port: &str, protocol: &str, wanted: u16) -> Answer {
        let own =
            format!("{}.{}.svc.{}", service.name_any(), service.namespace().unwrap_or_default(), self.zone);
        let mut found: Vec<(String, Ipv4Addr, u16)> = Vec::new();
        if let Some(address) = cluster_ip(service) {
            for known in service.spec.iter().flat_map(|spec| spec.ports.iter().flatten()) {
                let known_protocol = known.protocol.as_deref().unwrap_or("TCP").to_ascii_lowercase();
                let Ok(number) = u16::try_from(known.port) else { continue };
                if known.name.as_deref().unwrap_or_default() == port && known_protocol == protocol {
                    found.push((own.clone(), address, number));
                }
            }
        } else {
            for endpoint in self.endpoints(service) {
                for (known, known_protocol, number) in &endpoint.ports {
                    if known == port && known_protocol == protocol {
                        found.push((format!("{}.{own}", endpoint.name), endpoint.address, *number));
                    }
                }
            }
        }
        if found.is_empty() {
            return no_name();
        }
        let mut answer = success(Vec::new());
        if matches!(wanted, kind::SRV | kind::ANY) {
            for (target, address, port) in found {
                answer.records.push(record(name, Data::Srv { port, target: target.clone() }));
                answer.additional.push(record(&target, Data::A(address)));
            }
        }
        answer
    }

    /// Returns the ready endpoints of a service.
    fn endpoints(&self, service: &Service) -> Vec<Endpoint> {
        let mut endpoints = Vec::new();
        for slice in self.slices.iter().filter(|slice| is_of(slice, service)) {
            let ports: Vec<(String, String, u16)> = slice
                .ports
                .iter()
                .flatten()
                .filter_map(|port| {
                    let protocol = port.protocol.as_deref().unwrap_or("TCP").to_ascii_lowercase();
                    Some((port.name.clone().unwrap_or_default(), protocol, u16::try_from(port.port?).ok()?))
                })
                .collect();
            for endpoint in slice.endpoints.iter().flatten() {
                let ready = endpoint.conditions.as_ref().and_then(|conditions| conditions.ready);
                if ready == Some(false) {
                    continue;
                }
                for address in endpoint.addresses.iter().filter_map(|text| text.parse::<Ipv4Addr>().ok()) {
                    let name = endpoint.hostname.clone().filter(|name| !name.is_empty());
                    let name = name.unwrap_or_else(|| address.to_string().replace('.', "-"));
                    endpoints.push(Endpoint { name, address, ports: ports.clone() });
                }
            }
        }
        endpoints
    }

    /// Answers a question for the name of an address. Addresses of others are not this server's.
    fn reverse(&self, name: &str, reverse: &str) -> Option<Answer> {
        let mut octets: Vec<&str> = reverse.split('.').collect();
        octets.reverse();
        let address: Ipv4Addr = octets.join(".").parse().ok()?;
        let mut names = Vec::new();
        for service in self.services {
            let own = format!(
                "{}.{}.svc.{}",
                service.name_any(),
                service.namespace().unwrap_or_default(),
                self.zone
            );
            if cluster_ip(service) == Some(address) {
                names.push(own);
                continue;
            }
            let endpoints = self.endpoints(service).into_iter();
            let own_endpoints = endpoints.filter(|endpoint| endpoint.address == address);
            names.extend(own_endpoints.map(|endpoint| format!("{}.{own}", endpoint.name)));
        }
        names.sort_unstable();
        names.dedup();
        let records: Vec<Record> = names.into_iter().map(|target| record(name, Data::Ptr(target))).collect();
        (!records.is_empty()).then(|| success(records))
    }
}

fn success(records: Vec<Record>) -> Answer {
    Answer { code: Code::Success, records, additional: Vec::new() }
}

fn no_name() -> Answer {
    Answer { code: Code::NoName, records: Vec::new(), additional: Vec::new() }
}

fn record(name: &str, data: Data) -> Record {
    Record { name: name.to_owned(), data }
}

/// Returns the cluster IP of a service; `None` for a headless one.
fn cluster_ip(service: &Service) -> Option<Ipv4Addr> {
    match service.spec.as_ref()?.cluster_ip.as_deref()?.parse() {
        Ok(IpAddr::V4(address)) => Some(address),
        _ => None,
    }
}

/// Returns the address of a pod's name: 127-64-0-2.
fn dashed(label: &str) -> Option<Ipv4Addr> {
    label.replace('-', ".").parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn objects() -> (Vec<Arc<Service>>, Vec<Arc<EndpointSlice>>) {
        let service = |name: &str, spec: serde_json::Value| {
            let value = json!({"metadata": {"name": name, "namespace": "a"}, "spec": spec});
            Arc::new(serde_json::from_value(value).unwrap())
        };
        let services = vec![
            service("web", json!({"clusterIP": "127.128.0.9", "ports": [{"name": "http", "port": 80}]})),
            service("db", json!({"clusterIP": "None"})),
            service("out", json!({"type": "ExternalName", "externalName": "example.org."})),
        ];
        let slice = json!({
            "metadata": {"name": "db-1", "namespace": "a", "labels": {"kubernetes.io/service-name": "db"}},
            "addressType": "IPv4", "ports": [{"name": "sql", "port": 5432}],
            "endpoints": [
                {"addresses": ["127.64.0.2"], "hostname": "db-0", "conditions": {"ready": true}},
                {"addresses": ["127.64.0.3"]},
                {"addresses": ["127.64.0.4"], "conditions": {"ready": false}},
            ],
        });
        (services, vec![Arc::new(serde_json::from_value(slice).unwrap())])
    }

    fn ask(name: &str, wanted: u16) -> Option<Answer> {
        let (services, slices) = objects();
        View { zone: "cluster.local", services: &services, slices: &slices }.answer(name, wanted)
    }

    fn data(name: &str, wanted: u16) -> Vec<Data> {
        let answer = ask(name, wanted).expect("a name of the cluster");
        assert_eq!(answer.code, Code::Success, "{name}");
        answer.records.into_iter().map(|record| record.data).collect()
    }

    #[test]
    fn service_has_its_cluster_ip_and_a_headless_one_its_ready_endpoints() {
        let [first, second] = [[127, 64, 0, 2], [127, 64, 0, 3]].map(|octets| Data::A(octets.into()));
        assert_eq!(data("web.a.svc.cluster.local", kind::A), [Data::A([127, 128, 0, 9].into())]);
        assert_eq!(data("db.a.svc.cluster.local", kind::A), [first.clone(), second.clone()]);
        assert_eq!(data("db-0.db.a.svc.cluster.local", kind::A), [first]);
        assert_eq!(data("127-64-0-3.db.a.svc.cluster.local", kind::A), [second]);
        assert_eq!(data("out.a.svc.cluster.local", kind::A), [Data::Cname("example.org".into())]);
    }

    #[test]
    fn port_has_the_name_and_number_of_its_service_or_endpoints() {
        let target = "web.a.svc.cluster.local".to_owned();
        assert_eq!(data("_http._tcp.web.a.svc.cluster.local", kind::SRV), [Data::Srv { port: 80, target }]);
        let targets = ["db-0", "127-64-0-3"]
            .map(|name| Data::Srv { port: 5432, target: format!("{name}.db.a.svc.cluster.local") });
        assert_eq!(data("_sql._tcp.db.a.svc.cluster.local", kind::SRV), targets);
    }

    #[test]
    fn addresses_have_names() {
        let name = |text: &str| vec![Data::Ptr(text.to_owned())];
        assert_eq!(data("9.0.128.127.in-addr.arpa", kind::PTR), name("web.a.svc.cluster.local"));
        assert_eq!(data("2.0.64.127.in-addr.arpa", kind::PTR), name("db-0.db.a.svc.cluster.local"));
        assert_eq!(ask("1.2.3.4.in-addr.arpa", kind::PTR), None);
    }

    #[test]
    fn missing_names_and_types_differ() {
        const AAAA: u16 = 28;
        assert_eq!(data("web.a.svc.cluster.local", AAAA), []);
        for name in ["none.a.svc.cluster.local", "web.b.svc.cluster.local", "x.cluster.local"] {
            assert_eq!(ask(name, kind::A).map(|answer| answer.code), Some(Code::NoName), "{name}");
        }
        assert_eq!(ask("example.org", kind::A), None);
        assert_eq!(ask("notcluster.local", kind::A), None);
    }
}
