//! Services, host ports and DNS: everything that carries a pod's traffic.

use std::{
    io::{BufRead, BufReader, Read},
    net::{TcpListener, TcpStream, UdpSocket},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use crate::{
    cluster::{cluster, get, pod, web_image},
    sandboxes::has_pod_networks,
    support,
};

#[test]
fn service_answers_every_request_during_a_rolling_update() {
    let images = web_image();
    let server = cluster(&["--images", &images.path().display().to_string()]);
    let manifest = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: web
        ports: [{containerPort: 8080}]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 8080}]
"#;
    server.with_input(&["create", "-f", "-"], manifest);
    server.kubectl(&["rollout", "status", "deployment/web", "--timeout=120s"]);
    let address =
        format!("{}:8080", server.kubectl(&["get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"]));
    let deadline = Instant::now() + Duration::from_secs(30);
    while get(&address).is_none() {
        assert!(Instant::now() < deadline, "the service does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    let done = AtomicBool::new(false);
    let answers: Vec<Option<String>> = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut answers = Vec::new();
            while !done.load(Ordering::Relaxed) {
                answers.push(get(&address));
            }
            answers
        });
        server.kubectl(&["set", "env", "deployment/web", "VERSION=2"]);
        server.kubectl(&["rollout", "status", "deployment/web", "--timeout=120s"]);
        let deadline = Instant::now() + Duration::from_secs(60);
        while server.kubectl(&["get", "pods", "-o", "name"]).lines().count() != 3 {
            assert!(Instant::now() < deadline, "old pods stay");
        }
        done.store(true, Ordering::Relaxed);
        client.join().expect("the client")
    });
    let failed = answers.iter().filter(|answer| answer.is_none()).count();
    assert_eq!(failed, 0, "of {} requests", answers.len());
    assert!(answers.iter().flatten().any(|answer| answer.starts_with("1 ")));
    assert!(get(&address).is_some_and(|answer| answer.starts_with("2 ")));
}

#[test]
fn port_is_forwarded_and_proxied() {
    let images = web_image();
    let server = cluster(&["--images", &images.path().display().to_string()]);
    server.kubectl(&["run", "web", "--image=web", "--port=8080"]);
    server.kubectl(&["wait", "--for=condition=Ready", "pod/web", "--timeout=60s"]);
    server.eventually(&["get", "--raw", "/api/v1/namespaces/default/pods/web:8080/proxy/"], |output| {
        output == "1 web"
    });
    assert_eq!(server.kubectl(&["get", "--raw", "/api/v1/nodes/n1/proxy/healthz"]), "ok");
    let mut forward = Command::new(support::kubectl())
        .arg("--kubeconfig")
        .arg(server.kubeconfig())
        .args(["port-forward", "pod/web", ":8080"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("kubectl");
    let mut line = String::new();
    let mut output = BufReader::new(forward.stdout.take().expect("its output"));
    output.read_line(&mut line).expect("a line");
    let port = line
        .split_once("127.0.0.1:")
        .and_then(|(_, rest)| rest.split_once(' '))
        .expect("a port")
        .0
        .to_owned();
    let answers = [0; 3].map(|_| get(&format!("127.0.0.1:{port}")));
    forward.kill().expect("killed");
    forward.wait().expect("it ends");
    assert_eq!(answers, [0; 3].map(|_| Some("1 web\n".to_owned())));
}

/// A page with links, which also tells the method.
const PAGE: &str = r#"
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        if self.path == "/old":
            self.send_response(302)
            self.send_header("Location", "/new")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = ('<a href="/next">' + self.command + " " + self.headers["X-Forwarded-Uri"] + "</a>").encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
    do_GET = do_HEAD = do_OPTIONS = do_POST = do_PUT = do_PATCH = do_DELETE = answer
http.server.ThreadingHTTPServer((os.environ["POD_IP"], 8080), Handler).serve_forever()
"#;

#[test]
fn links_of_proxied_pages_lead_through_the_proxy() {
    let cluster = cluster(&[]);
    let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "page", "labels": {"app": "page"}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "local/python3",
            "command": ["python3", "-c", PAGE], "ports": [{"containerPort": 8080}],
            "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1}}]}});
    cluster.with_input(&["create", "-f", "-"], &pod.to_string());
    cluster.ready("page");
    cluster.kubectl(&["expose", "pod", "page", "--port=80", "--target-port=8080"]);
    let mut proxy = Command::new(support::kubectl())
        .arg("--kubeconfig")
        .arg(cluster.kubeconfig())
        .args(["proxy", "--port=0"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("kubectl");
    let mut line = String::new();
    BufReader::new(proxy.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
    let address = line.trim().rsplit(' ').next().expect("an address").to_owned();
    let ask = |method: &str, path: &str| {
        let mut stream = TcpStream::connect(&address).expect("a connection");
        let request = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        std::io::Write::write_all(&mut stream, request.as_bytes()).expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    };
    let base = "/api/v1/namespaces/default";
    cluster.eventually(&["get", "--raw", &format!("{base}/services/page/proxy/")], |page| {
        page.starts_with("<a ")
    });
    for object in ["pods/page", "pods/page:8080", "services/page", "services/page:80"] {
        let own = format!("{base}/{object}/proxy");
        for method in ["GET", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"] {
            let answer = ask(method, &format!("{own}/a/b/?c=d"));
            let page = format!("<a href=\"{own}/next\">{method} {own}/a/b/</a>");
            assert!(
                answer.starts_with("HTTP/1.1 200") && answer.contains(&page),
                "{method} {object}: {answer}"
            );
        }
        let head = ask("HEAD", &format!("{own}/a"));
        assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{object}: {head}");
        let moved = ask("GET", &format!("{own}/old")).to_lowercase();
        assert!(
            moved.starts_with("http/1.1 302") && moved.contains(&format!("location: {own}/new\r\n")),
            "{moved}"
        );
        for method in ["GET", "HEAD"] {
            let answer = ask(method, &format!("{own}?c=d")).to_lowercase();
            let location = format!("location: {own}/?c=d\r\n");
            assert!(
                answer.starts_with("http/1.1 301") && answer.contains(&location),
                "{method} {object}: {answer}"
            );
        }
    }
    proxy.kill().expect("killed");
    proxy.wait().expect("it ends");
}

/// A server of UDP and TCP that answers with its name.
const ECHO: &str = r#"
import os, socket, threading
def tcp():
    server = socket.create_server((os.environ["POD_IP"], 7000))
    while True:
        client, _ = server.accept()
        client.sendall(os.environ["HOSTNAME"].encode())
        client.close()
threading.Thread(target=tcp, daemon=True).start()
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((os.environ["POD_IP"], 7000))
open("/tmp/ready", "w")
while True:
    data, client = server.recvfrom(1024)
    server.sendto(os.environ["HOSTNAME"].encode() + b" " + data, client)
"#;

fn echo_pod(name: &str, ports: serde_json::Value) -> String {
    serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "echo"}},
        "spec": {"hostname": name, "subdomain": "peers", "containers": [{"name": "c", "image": "local/python3",
            "command": ["python3", "-c", ECHO], "ports": ports,
            "readinessProbe": {"exec": {"command": ["test", "-f", "/tmp/ready"]}, "periodSeconds": 1}}]}})
    .to_string()
}

/// Sends a datagram until it is answered.
#[track_caller]
fn ask_udp(address: &str, text: &str) -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(Duration::from_millis(500))).expect("a limit");
    socket.connect(address).expect("an address");
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut buffer = [0; 1024];
    loop {
        let _ = socket.send(text.as_bytes());
        match socket.recv(&mut buffer) {
            Ok(length) => return String::from_utf8_lossy(&buffer[..length]).into_owned(),
            Err(error) => assert!(Instant::now() < deadline, "{address}: {error}"),
        }
    }
}

/// Connects until there is an answer.
#[track_caller]
fn ask_tcp(address: &str) -> String {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let mut said = String::new();
        let _ = TcpStream::connect(address).and_then(|mut stream| stream.read_to_string(&mut said));
        if !said.is_empty() {
            return said;
        }
        assert!(Instant::now() < deadline, "{address} does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns a port that nobody listens on.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

#[test]
fn service_that_is_not_forwarded_says_why() {
    let cluster = cluster(&["--service-cluster-ip-range", "10.96.0.0/16"]);
    // A node port that another program has.
    let (taken, port) = (30000..32768)
        .find_map(|port| Some((TcpListener::bind(("127.0.0.1", port)).ok()?, port)))
        .expect("a free port");
    cluster.create(&format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: s}}, spec: {{type: NodePort, selector: {{run: p}}, \
         ports: [{{port: 80, nodePort: {port}}}]}}}}"
    ));
    let address = cluster.kubectl(&["get", "service", "s", "-o", "jsonpath={.spec.clusterIP}"]);
    let of_service =
        ["get", "events", "--field-selector=involvedObject.name=s", "-o", "jsonpath={.items[*].message}"];
    cluster.eventually(&of_service, |events| {
        events.contains(&format!("{address} is not of 127.0.0.0/8"))
            && events.contains(&format!("cannot listen on 127.0.0.1:{port}: Address already in use"))
    });
    drop(taken);
}

#[test]
fn udp_services_and_host_ports_reach_their_pods() {
    let cluster = cluster(&[]);
    let host_port = free_port();
    let ports = serde_json::json!([
        {"containerPort": 7000, "hostPort": host_port, "protocol": "TCP"},
        {"containerPort": 7000, "hostPort": host_port, "protocol": "UDP"},
    ]);
    cluster.create(&echo_pod("one", ports));
    cluster.create(
        "{apiVersion: v1, kind: Service, metadata: {name: echo}, spec: {selector: {app: echo}, \
         ports: [{name: u, port: 7000, protocol: UDP}, {name: t, port: 7000}]}}",
    );
    cluster.ready("one");
    let ip = cluster.kubectl(&["get", "service", "echo", "-o", "jsonpath={.spec.clusterIP}"]);
    assert_eq!(ask_udp(&format!("{ip}:7000"), "hello"), "one hello");
    assert_eq!(ask_tcp(&format!("{ip}:7000")), "one");
    assert_eq!(ask_udp(&format!("127.0.0.1:{host_port}"), "hello"), "one hello");
    assert_eq!(ask_tcp(&format!("127.0.0.1:{host_port}")), "one");
    // A second pod with the port has to wait for another node.
    let ports = serde_json::json!([{"containerPort": 7000, "hostPort": host_port}]);
    cluster.create(&echo_pod("two", ports));
    cluster.eventually(&["get", "events", "-o", "jsonpath={.items[*].message}"], |events| {
        events.contains("1 node(s) didn't have free ports for the requested pod ports")
    });
    cluster.kubectl(&["delete", "pod", "one", "--grace-period=1", "--timeout=60s"]);
    cluster.ready("two");
    assert_eq!(ask_tcp(&format!("127.0.0.1:{host_port}")), "two");
    assert_eq!(ask_udp(&format!("{ip}:7000"), "again"), "two again");
}

#[test]
fn names_of_services_are_resolved() {
    // An address that no other test has.
    let dns = format!("127.250.{}.{}", std::process::id() / 250 % 250, std::process::id() % 250 + 1);
    if TcpListener::bind((dns.as_str(), 53)).is_err() {
        orlop_testbed::not_run::not_run("port 53 cannot be listened on");
        return;
    }
    let cluster = cluster(&["--cluster-dns", &dns]);
    cluster.create(&echo_pod(
        "one",
        serde_json::json!([{"name": "udp", "containerPort": 7000, "protocol": "UDP"}]),
    ));
    cluster.create(
        "{apiVersion: v1, kind: Service, metadata: {name: echo}, spec: {selector: {app: echo}, ports: [{port: 7000}]}}\n---\n\
         {apiVersion: v1, kind: Service, metadata: {name: peers}, spec: {clusterIP: None, selector: {app: echo}, ports: [{port: 7000}]}}",
    );
    cluster.ready("one");
    let resolve = |name: &str| {
        let (is_found, said) = cluster.run(&["exec", "one", "--", "getent", "ahostsv4", name], "");
        said.split_whitespace().next().filter(|_| is_found).unwrap_or_default().to_owned()
    };
    let service = cluster.kubectl(&["get", "service", "echo", "-o", "jsonpath={.spec.clusterIP}"]);
    let pod = cluster.field("one", ".status.podIP");
    let until = |name: &str, address: &str| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while resolve(name) != address {
            assert!(Instant::now() < deadline, "{name} is {:?}", resolve(name));
        }
    };
    until("echo", &service);
    until("echo.default.svc.cluster.local", &service);
    until("one.peers", &pod);
    let api_server = cluster.kubectl(&["get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}"]);
    assert_eq!(resolve("kubernetes.default.svc"), api_server);
    assert_eq!(resolve("none.default.svc.cluster.local"), "");
    let files = cluster.kubectl(&["exec", "one", "--", "cat", "/etc/resolv.conf"]);
    assert_eq!(
        files,
        format!(
            "nameserver {dns}\nsearch default.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5"
        )
    );
}

#[test]
fn pods_with_networks_of_their_own_listen_on_all_addresses() {
    if !has_pod_networks() {
        return;
    }
    let cluster = cluster(&["--pod-network", "own"]);
    for name in ["a", "b"] {
        let spec = "{containers: [{name: c, image: local/python3, command: [python3, -m, http.server, '8080'], \
            workingDir: /tmp, readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}}]}";
        cluster.create(&format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {spec}}}"));
    }
    for name in ["a", "b"] {
        cluster.ready(name);
        assert!(get(&format!("{}:8080", cluster.field(name, ".status.podIP"))).is_some(), "{name}");
    }
    let other = format!("http://{}:8080/", cluster.field("b", ".status.podIP"));
    let ask = format!("import urllib.request; print(urllib.request.urlopen('{other}').status)");
    assert_eq!(cluster.kubectl(&["exec", "a", "--", "python3", "-c", &ask]), "200");
}

#[test]
fn pods_that_take_each_others_port_are_told_so() {
    let cluster = cluster(&[]);
    let port = std::net::TcpListener::bind("0.0.0.0:0").and_then(|free| free.local_addr()).expect("a port");
    let port = port.port();
    let create = |name: &str| {
        let spec = format!(
            "{{containers: [{{name: c, image: local/python3, command: [python3, -m, http.server, '{port}'], \
            workingDir: /tmp, readinessProbe: {{tcpSocket: {{port: {port}}}, periodSeconds: 1}}}}]}}"
        );
        cluster.create(&pod(name, &spec));
    };
    create("first");
    cluster.ready("first");
    create("second");
    let each = "jsonpath={range .items[*]}{.involvedObject.name} {.message}{'\\n'}{end}";
    let events = ["get", "events", "--field-selector=reason=AddressInUse", "-o", each];
    cluster.eventually(&events, |found| found.starts_with("second "));
    let said = cluster.kubectl(&events);
    assert!(said.starts_with("second The address of container c is in use (OSError: [Errno 98]"), "{said}");
    let owner = format!("Listening now: pod default/first on all addresses at port {port}.");
    assert!(said.contains(&owner) && said.contains("--pod-network own"), "{said}");
    assert!(cluster.kubectl(&["describe", "pod", "second"]).contains("listen on $POD_IP"));
    // The first one's end, which was asked for, is no such event.
    cluster.kubectl(&["delete", "pod", "first", "--timeout=60s"]);
    let said = cluster.kubectl(&events);
    assert!(said.lines().all(|line| line.starts_with("second ")), "{said}");
}
