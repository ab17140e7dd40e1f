// SPDX-License-Identifier: GPL-2.0-only
// What a reader of the page would stumble over, with the width and the colour scheme that the browser has now. The check adds
// this script to a copy of the page, and reads the element that it leaves.
"use strict";

const found = new Set();

// [red, green, blue], and alpha unless it is 1, of a computed colour
const channels = (colour) => colour.match(/[\d.]+/g).map(Number);

// The contrast of two colours by WCAG 2: from 1, the same, to 21.
const luminance = (colour) => {
	const [red, green, blue] = channels(colour).map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
	return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
const contrast = (a, b) => {
	const [dark, bright] = [luminance(a), luminance(b)].sort((x, y) => x - y);
	return (bright + 0.05) / (dark + 0.05);
};

const background = (element) => {
	for (; element; element = element.parentElement) {
		const colour = getComputedStyle(element).backgroundColor;
		if (channels(colour).length === 3)
			return colour;
	}
	return "rgb(255, 255, 255)";
};

const excerpt = (element) => element.textContent.trim().replace(/\s+/g, " ").slice(0, 40);

if (document.documentElement.scrollWidth > innerWidth)
	found.add(`scrolls sideways: ${document.documentElement.scrollWidth} of ${innerWidth} pixels`);
// What is folded is looked at, too.
for (const details of document.querySelectorAll("details"))
	details.open = true;
if (document.documentElement.scrollWidth > innerWidth)
	found.add(`scrolls sideways when all is unfolded: ${document.documentElement.scrollWidth} of ${innerWidth} pixels`);

for (const element of document.body.querySelectorAll("*")) {
	const text = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
	if (!text || element instanceof SVGElement && element.localName !== "text" || element.closest("script"))
		continue;
	const style = getComputedStyle(element), svg = element.closest("svg");
	const [ink, paper] = svg ? [style.fill, background(svg)] : [style.color, background(element)];
	if (contrast(ink, paper) < 4.5)
		found.add(`cannot be read, ${ink} on ${paper}: ${excerpt(element)}`);
}

// A reader who sees no colours needs a mark.
for (const [kind, mark] of Object.entries({ pass: "✓", fail: "✗", skip: "–" }))
	for (const element of document.body.querySelectorAll(`.${kind}`))
		if (element.textContent.trim() && !element.textContent.trim().startsWith(mark))
			found.add(`only its colour says ${kind}: ${excerpt(element)}`);

const seen = document.createElement("pre");
seen.id = "seen";
seen.textContent = [`width ${innerWidth}, ${matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"}`, ...found, ""].join("\n");
document.body.append(seen);
