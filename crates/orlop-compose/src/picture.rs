//! Pictures of a graph: Mermaid, Graphviz and SVG.

use std::fmt::Write as _;

use crate::graph::Graph;

/// Draws a graph for Mermaid.
pub fn to_mermaid(graph: &Graph) -> String {
    let mut text = String::from("graph TD\n");
    for node in &graph.nodes {
        let kind = &node.kind.gvk.kind;
        let (open, close) = if node.role.is_managed() { ("[", "]") } else { ("([", "])") };
        let _ = writeln!(text, "  {}{open}\"{} ({kind})\"{close}", node.id, node.id);
    }
    for node in &graph.nodes {
        for dependency in &node.dependencies {
            let _ = writeln!(text, "  {} --> {}", graph.nodes[*dependency].id, node.id);
        }
        for dependency in &node.soft_dependencies {
            let _ = writeln!(text, "  {} -.-> {}", graph.nodes[*dependency].id, node.id);
        }
    }
    text
}

/// Draws a graph for Graphviz.
pub fn to_dot(graph: &Graph) -> String {
    let mut text = String::from("digraph {\n");
    for node in &graph.nodes {
        let shape = if node.role.is_managed() { "box" } else { "oval" };
        let _ =
            writeln!(text, "  {} [shape={shape}, label=\"{}\\n{}\"];", node.id, node.id, node.kind.gvk.kind);
    }
    for node in &graph.nodes {
        for dependency in &node.dependencies {
            let _ = writeln!(text, "  {} -> {};", graph.nodes[*dependency].id, node.id);
        }
        for dependency in &node.soft_dependencies {
            let _ = writeln!(text, "  {} -> {} [style=dashed];", graph.nodes[*dependency].id, node.id);
        }
    }
    text.push_str("}\n");
    text
}

/// Size of a box, gaps between boxes, and the margin, in pixels.
const BOX_WIDTH: usize = 180;
const BOX_HEIGHT: usize = 48;
const GAP_X: usize = 24;
const GAP_Y: usize = 56;
const MARGIN: usize = 16;
/// Characters of a text that fit into a box.
const TEXT_MAX: usize = 24;

/// Draws a graph as SVG, one row per dependency level.
pub fn to_svg(graph: &Graph) -> String {
    let mut levels: Vec<usize> = Vec::with_capacity(graph.nodes.len());
    let mut widths: Vec<usize> = Vec::new();
    let mut places = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        // Nodes stand in topological order, so the levels of dependencies are known.
        let below = node.dependencies.iter().chain(&node.soft_dependencies);
        let level = below.filter_map(|index| levels.get(*index)).max().map_or(0, |level| level + 1);
        levels.push(level);
        if widths.len() <= level {
            widths.resize(level + 1, 0);
        }
        let column = widths[level];
        widths[level] += 1;
        places.push((MARGIN + column * (BOX_WIDTH + GAP_X), MARGIN + level * (BOX_HEIGHT + GAP_Y)));
    }
    let columns = widths.iter().copied().max().unwrap_or(0);
    let width = 2 * MARGIN + columns * (BOX_WIDTH + GAP_X);
    let height = 2 * MARGIN + widths.len() * (BOX_HEIGHT + GAP_Y);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} \
         {height}\" font-family=\"sans-serif\" font-size=\"12\">\n<defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" \
         refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\"/>\
         </marker></defs>\n"
    );
    for (node, (x, y)) in graph.nodes.iter().zip(&places) {
        let edges = node.dependencies.iter().map(|index| (index, ""));
        let soft = node.soft_dependencies.iter().map(|index| (index, " stroke-dasharray=\"4 3\""));
        for (index, style) in edges.chain(soft) {
            let Some((from_x, from_y)) = places.get(*index) else { continue };
            let _ = writeln!(
                text,
                "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{y}\" stroke=\"#666\" marker-end=\"url(#arrow)\"{style}/>",
                from_x + BOX_WIDTH / 2,
                from_y + BOX_HEIGHT,
                x + BOX_WIDTH / 2,
            );
        }
    }
    for (node, (x, y)) in graph.nodes.iter().zip(&places) {
        let radius = if node.role.is_managed() { 4 } else { BOX_HEIGHT / 2 };
        let fill = if node.role.is_list() { "#eef3ff" } else { "#fff" };
        let middle = x + BOX_WIDTH / 2;
        let _ = writeln!(
            text,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{BOX_WIDTH}\" height=\"{BOX_HEIGHT}\" rx=\"{radius}\" \
             fill=\"{fill}\" stroke=\"#333\"/>\n<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\" \
             font-weight=\"bold\">{}</text>\n<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            y + 20,
            shorten(&node.id),
            y + 36,
            shorten(&node.kind.gvk.kind),
        );
    }
    text.push_str("</svg>\n");
    text
}

/// Ids and kinds are letters and digits, so nothing needs escaping.
fn shorten(text: &str) -> String {
    match text.char_indices().nth(TEXT_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
